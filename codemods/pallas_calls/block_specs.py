"""The specs of a grid's blocks, as ``pl.pallas_call`` took them, for a pipeline in a kernel over a mesh."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit
from mgpu_fix.source import Names
from mgpu_fix.source.file import apply_edits

from ..arguments import without_statement
from ..callees import public
from ..imports import Imports
from ..stores import unused

_PL = "jax.experimental.pallas"
_PLGPU = "jax.experimental.pallas.mosaic_gpu"
_SPECS = {f"{_PL}.BlockSpec", f"{_PLGPU}.BlockSpec", f"{_PLGPU}.GPUBlockSpec"}
#: a place where no name is used
NOWHERE: ast.AST = ast.Module([], [])


@dataclass(frozen=True)
class Axes:
    """The axes of a grid: what each is called, and which of them blocks of the GPU run in any order."""

    names: Sequence[str]
    parallel: Sequence[bool]

    @property
    def sequential(self) -> list[int]:
        """Those that a pipeline runs over."""
        return [number for number, parallel in enumerate(self.parallel) if not parallel]


@dataclass(frozen=True)
class Spec:
    """The call that makes the spec of one operand, or of several alike; None for an operand without one."""

    call: ast.Call | None

    def get(self, name: str) -> ast.expr | None:
        """An argument, by its name."""
        if self.call is None:
            return None
        places = dict(zip(("block_shape", "index_map"), self.call.args, strict=False))
        given = places | {k.arg: k.value for k in self.call.keywords}
        value = given.get(name)
        return None if isinstance(value, ast.Constant) and value.value is None else value

    @property
    def is_gmem(self) -> bool:
        """Whether it leaves its operand where it is, in GMEM, and whole."""
        space = self.get("memory_space")
        return (
            space is not None
            and re.search(r"\b(GMEM|ANY)$", ast.unparse(space)) is not None
            and not any(map(self.get, ("block_shape", "index_map")))
        )


def specs_of(names: Names, value: ast.expr) -> list[Spec]:
    """The specs of a list of them, or of one operand. Raises NoFix where one is not made in this file."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            if any(isinstance(element, ast.List | ast.Tuple) for element in elements):
                raise NoFix(f"the specs at line {value.lineno} are not one for each array")
            return [spec for element in elements for spec in specs_of(names, element)]
        case ast.BinOp(op=ast.Mult(), left=ast.List() | ast.Tuple() as left):
            return specs_of(names, left)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return [*specs_of(names, left), *specs_of(names, right)]
        case ast.Call() if public(names.resolve(value.func)) in _SPECS:
            return [Spec(value)]
        case ast.Name(id=name) if isinstance(bound := names.binding(name, value), ast.expr):
            return specs_of(names, bound)
    if public(names.resolve(value)).endswith(".no_block_spec"):
        return [Spec(None)]
    raise NoFix(f"the spec at line {value.lineno} is not made in this file")


class Blocks:
    """The specs of a pipeline, whose index maps get the indices of its own axes only."""

    def __init__(
        self, names: Names, call: ast.Call, axes: Axes, taken: Set[str], delay_release: str, imports: Imports
    ) -> None:
        self.names, self.call, self.axes, self.imports = names, call, axes, imports
        self.delay_release = delay_release
        #: names for the indices of the mesh's axes, in the function around the body
        self.variables = [unused(name, NOWHERE, taken) for name in axes.names]
        #: which of them the index maps ask for
        self.asked_for: set[int] = set()
        #: assignments that go into the function around the body, and edits that take them away where they were
        self.assigned: list[str] = []
        self.moved: list[Edit] = []

    def listed(self, value: ast.expr, is_input: bool) -> str:
        """A list of specs, as the pipeline takes it."""
        text = self._text(value, is_input)
        bound = self.names.binding(value.id, value) if isinstance(value, ast.Name) else value
        return f"[{text}]" if isinstance(bound, ast.Call) else text

    def _text(self, value: ast.expr, is_input: bool) -> str:
        """A value that holds specs, with all of them rewritten."""
        edits: dict[Edit, None] = {}
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and public(self.names.resolve(node.func)) in _SPECS:
                edits |= dict.fromkeys(self._edits(Spec(node), is_input))
            elif isinstance(node, ast.Name) and isinstance(bound := self.names.binding(node.id, node), ast.expr):
                self._move(node, bound, is_input)
            if isinstance(node, ast.expr) and public(self.names.resolve(node)).endswith(".no_block_spec"):
                edits[Edit(*self.names.source.bounds(node), f"{self.imports.name(_PL)}.BlockSpec()")] = None
        start, end = self.names.source.bounds(value)
        shifted = [Edit(e.start - start, e.end - start, e.new) for e in edits]
        text = apply_edits(self.names.source.text[start:end], shifted)
        return _dedented(text, self.names.source.indentation(value.lineno))

    def _move(self, use: ast.Name, bound: ast.expr, is_input: bool) -> None:
        """Take the assignment of a name into the function around the body, where its specs become others."""
        names = self.names
        calls = [c for c in ast.walk(bound) if isinstance(c, ast.Call) and public(names.resolve(c.func)) in _SPECS]
        if not any(True for call in calls for _ in self._edits(Spec(call), is_input)):
            return
        assign = names.parents[bound]
        if not isinstance(assign, ast.Assign) or len(assign.targets) != 1:
            raise NoFix(f"`{use.id}` is bound at line {bound.lineno} together with another name")
        uses = names.uses(use.id, names.home(use.id, use) or bound)
        elsewhere = [u for u in uses if self.call not in names.ancestors(u)]
        if elsewhere:
            raise NoFix(f"`{use.id}` is also used at line {elsewhere[0].lineno}")
        line = f"{use.id} = {self._text(bound, is_input)}"
        if line not in self.assigned:
            self.assigned.append(line)
            self.moved.append(without_statement(names, assign))

    def _edits(self, spec: Spec, is_input: bool) -> Iterator[Edit]:
        """What changes the call that makes a spec."""
        source, call = self.names.source, spec.call
        assert call is not None
        for name in ("pipeline_mode", "collective_axes"):
            if spec.get(name) is not None:
                raise NoFix(f"plgpu.emit_pipeline has no counterpart of {name}= at line {call.lineno}")
        if not plain(call.args) or any(k.arg is None for k in call.keywords):
            raise NoFix(f"the spec at line {call.lineno} is not written out")
        shape, index_map = spec.get("block_shape"), spec.get("index_map")
        if index_map is not None and shape is None:
            raise NoFix(f"the spec at line {call.lineno} has an index map and no block_shape")
        if index_map is not None:
            yield from self._index_map(index_map)
        elif shape is not None:
            if not isinstance(shape, ast.Tuple | ast.List):
                raise NoFix(f"how many axes the blocks at line {call.lineno} have is not known")
            _, end = source.bounds(shape)
            head = "" if shape in call.args else "index_map="
            yield Edit(end, end, f", {head}{self._lambda()} {in_tuple('0' for _ in shape.elts)}")
        if self.delay_release and is_input and not spec.is_gmem:
            yield Edit(*source.bounds(call.func), f"{self.imports.name(_PLGPU)}.BlockSpec")
            _, end = source.bounds(call)
            lead = " " if source.text[: end - 1].rstrip().endswith((",", "(")) else ", "
            yield Edit(end - 1, end - 1, f"{lead}delay_release={self.delay_release}")

    def _index_map(self, index_map: ast.expr) -> Iterator[Edit]:
        axes, source = self.axes, self.names.source
        if not any(axes.parallel):
            return
        start, end = source.bounds(index_map)
        if not isinstance(index_map, ast.Lambda):
            if not isinstance(index_map, ast.Name | ast.Attribute):
                raise NoFix(f"the index map at line {index_map.lineno} is not understood")
            given = [self._variable(n) if axes.parallel[n] else name for n, name in enumerate(axes.names)]
            yield Edit(start, end, f"{self._lambda()} {source.segment(index_map)}({', '.join(given)})")
            return
        taken = index_map.args
        if taken.vararg and not taken.args and not self.names.uses(taken.vararg.arg, index_map):
            return
        if len(taken.args) != len(axes.names) or taken.defaults or taken.vararg or taken.kwonlyargs or taken.kwarg:
            raise NoFix(f"the index map at line {index_map.lineno} does not take one index for each axis of the grid")
        kept = [taken.args[number].arg for number in axes.sequential]
        header = source.text.index(":", source.bounds(taken.args[-1])[1] if taken.args else start) + 1
        yield Edit(start, header, f"lambda {', '.join(kept)}:" if kept else "lambda:")
        for number, parameter in enumerate(taken.args):
            uses = self.names.uses(parameter.arg, index_map) if axes.parallel[number] else []
            for use in uses:
                if self._variable(number) in kept:
                    raise NoFix(f"`{parameter.arg}` means several axes in the specs of the kernel")
                yield Edit(*source.bounds(use), self._variable(number))

    def _variable(self, number: int) -> str:
        self.asked_for.add(number)
        return self.variables[number]

    def _lambda(self) -> str:
        kept = [self.axes.names[number] for number in self.axes.sequential]
        return f"lambda {', '.join(kept)}:" if kept else "lambda:"


def plain(elements: Iterable[ast.expr]) -> bool:
    """Whether none of them is spread from something."""
    return not any(isinstance(element, ast.Starred) for element in elements)


def in_tuple(texts: Iterable[str]) -> str:
    """A tuple of these texts, empty where there are none."""
    listed = [*texts]
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})" if listed else "()"


def _dedented(text: str, indent: str) -> str:
    """Lines after the first without an indentation that they have all in common with the line that it is on."""
    return re.sub(rf"(?m)(?<=\n){re.escape(indent)}(?=\S|[ \t])", "", text) if indent else text
