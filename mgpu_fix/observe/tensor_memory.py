"""Loads and stores of tensor memory (TMEM) in a traced kernel that are written as if it were SMEM."""

from dataclasses import dataclass
from typing import Any

from mgpu_fix.model import TensorMemoryUse
from mgpu_fix.observe import jaxseam, locate

_LOADS = ("get", "load")
_STORES = ("swap", "addupdate", "store")
#: Operations that only read the TMEM they are given, or that wait.
_READS = ("async_load_tmem",)


@dataclass(frozen=True)
class _Use:
    """An operation on a piece of TMEM, in the order of the trace, and the outermost loop that it is in."""

    ref: Any
    equation: Any
    loop: int | None

    @property
    def name(self) -> str:
        return jaxseam.operation_name(self.equation)


def tensor_memory_uses(closed: Any) -> tuple[TensorMemoryUse, ...]:
    """Every such use whose place in the user's source is known. Raises whatever the walk over a jaxpr may raise."""
    uses: list[_Use] = []
    scoped: set[Any] = set()
    _walk(closed.jaxpr, {}, None, uses, scoped)
    found = []
    for i, use in enumerate(uses):
        span = locate.user_place(jaxseam.frames_of(use.equation))
        if span is not None and use.name in (*_LOADS, *_STORES):
            found.append(TensorMemoryUse(span, use.name in _STORES, _is_reused(uses, i, scoped)))
    return tuple(dict.fromkeys(found))


def _is_reused(uses: list[_Use], i: int, scoped: set[Any]) -> bool:
    """Whether what a use is of is written to later, or in the same loop. Memory of a scope that has ended is another
    one's next."""
    use = uses[i]
    writers = (
        j
        for j, other in enumerate(uses)
        if (other.ref is use.ref or use.ref in scoped) and other.name not in (*_LOADS, *_READS) and j != i
    )
    return any(j > i or (use.loop is not None and uses[j].loop == use.loop) for j in writers)


def _walk(jaxpr: Any, roots: dict[Any, Any], loop: int | None, uses: list[_Use], scoped: set[Any]) -> None:
    """Note every use in a jaxpr, and what is allocated in it; ``roots`` says which Ref a variable stands for."""
    for equation in jaxpr.eqns:
        inner = jaxseam.inner_jaxprs(equation)
        inside = id(equation) if loop is None and jaxseam.is_loop(equation) else loop
        for body, bound in inner:
            known = {
                v: roots.get(o, o) for v, o in bound.items() if jaxseam.is_ref_type(v.aval) and not hasattr(o, "val")
            }
            if jaxseam.operation_name(equation) == "run_scoped":
                scoped |= {v for v in body.invars if v not in bound}
            _walk(body, {**roots, **known}, inside, uses, scoped)
        refs = [] if inner else [v for v in equation.invars if not hasattr(v, "val")]
        uses += [_Use(roots.get(v, v), equation, loop) for v in refs if jaxseam.space_of(v.aval) == "tmem"]
