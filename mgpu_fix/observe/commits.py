"""Asynchronous copies out of SMEM that may run ahead of the stores they are to copy: no ``commit_smem`` between.

JAX says nothing of it, and the interpreter copies what was stored; a GPU may copy what was there before.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from mgpu_fix.model import Uncommitted
from mgpu_fix.observe import jaxseam, locate

#: Operations after which earlier stores can be copied, and those that may hold anything.
_FENCES = frozenset({"commit_smem", "inline_mgpu"})
_STORES = frozenset({"swap", "addupdate", "store"})
_COPY = "copy_smem_to_gmem"


#: by the Ref and the identity of the equation
_Stores: TypeAlias = dict[tuple[Any, int], Any]


def uncommitted(closed: Any) -> tuple[Uncommitted, ...]:
    """Every copy in a traced kernel call that surely lacks a commit: on no way to it is there any."""
    walk = _Walk()
    walk.run(closed.jaxpr, {}, {})
    return tuple(dict.fromkeys(walk.found))


class _Walk:
    def __init__(self) -> None:
        self.found: list[Uncommitted] = []

    def run(self, jaxpr: Any, roots: dict[Any, Any], dirty: _Stores) -> _Stores:
        """Follow a jaxpr. ``roots`` says which Ref a variable stands for, ``dirty`` holds the stores that nothing
        committed; returns those of afterwards."""
        dirty = dict(dirty)
        for equation in jaxpr.eqns:
            name = jaxseam.operation_name(equation)
            inner = jaxseam.inner_jaxprs(equation)
            if inner:
                ends = [self.run(j, dict(self._bound(roots, bound)), dirty) for j, bound in inner]
                if jaxseam.runs_again(equation):
                    # What one step stores at its end the next one may copy; its parts may be others then.
                    carried = [{key: e for key, e in end.items() if not jaxseam.part_of_ref(e)[0]} for end in ends]
                    for (again, bound), left in zip(inner, carried, strict=True):
                        self.run(again, dict(self._bound(roots, bound)), left)
                if jaxseam.is_loop(equation):
                    # It may run no time at all.
                    ends.append(dirty)
                dirty = {key: ends[0][key] for key in ends[0] if all(key in end for end in ends)}
            elif name in _FENCES:
                dirty = {}
            elif name in _STORES and jaxseam.space_of(equation.invars[0].aval) == "smem":
                dirty[self._root(roots, equation.invars[0]), id(equation)] = equation
            elif name == _COPY:
                source = self._root(roots, equation.invars[0])
                stores = [e for (ref, _), e in dirty.items() if ref is source and _overlap(e, equation)]
                places = [locate.user_place(jaxseam.frames_of(e)) for e in (equation, *stores[-1:])]
                if len(places) == 2 and places[0] and places[1]:
                    self.found.append(Uncommitted(places[0], places[1]))
        return dirty

    def _bound(self, roots: dict[Any, Any], bound: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
        for variable, operand in bound.items():
            if jaxseam.is_ref_type(variable.aval) and not hasattr(operand, "val"):
                yield variable, self._root(roots, operand)

    @staticmethod
    def _root(roots: dict[Any, Any], variable: Any) -> Any:
        return roots.get(variable, variable)


def _overlap(store: Any, copy: Any) -> bool:
    """Whether a copy surely takes something that a store put there: one of them is of the whole, or both are equal."""
    stored, copied = jaxseam.part_of_ref(store), jaxseam.part_of_ref(copy)
    return not stored[0] or not copied[0] or stored == copied
