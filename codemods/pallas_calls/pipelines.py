"""What a grid of blocks, as ``pl.pallas_call`` took it, is in a kernel over a mesh: a pipeline in its body.

Axes that blocks of the GPU run in any order are the mesh's; the others are the pipeline's. JAX lowered
``pl.pallas_call`` in this way itself up to 0.11.0, and its tests still do (``mosaic_gpu/pallas_call.py``).
"""

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit
from mgpu_fix.source import Names
from mgpu_fix.source.names import bare_name

from ..arguments import without_statement
from ..callbacks import Callback
from ..imports import Imports
from ..stores import unused
from .block_specs import NOWHERE, Axes, Blocks, in_tuple, plain, specs_of
from .grid_position import asks_for_size, axis, positions

_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
#: parameters of the compiler that are the pipeline's
_PIPELINED = ("dimension_semantics", "max_concurrent_steps", "delay_release")


def is_applied(names: Names, call: ast.Call) -> bool:
    """Whether what a call returns is called at once."""
    parent = names.parents[call]
    return isinstance(parent, ast.Call) and parent.func is call


class Pipeline:
    """How a ``pl.pallas_call`` with these ``arguments`` runs its body. Raises NoFix where that is not understood."""

    def __init__(
        self,
        names: Names,
        call: ast.Call,
        arguments: Mapping[str, ast.expr],
        body: Callback,
        params: ast.Call | None,
    ) -> None:
        self.names, self.call, self.arguments, self.body = names, call, arguments, body
        self._params = {k.arg: k.value for k in params.keywords} if params else {}
        self._grid = self._sizes()
        self.rank = len(self._grid)
        self.axes = Axes(self._names_of_axes(), self._semantics())
        #: what the body is told besides its blocks, and how that is written where it is called
        self.told: dict[str, str] = {}
        #: edits that take out of the file what the pipeline is given
        self.moved: list[Edit] = []

    # ------------------------------------------------------------------ the grid

    def is_parallel(self, number: int) -> bool:
        """Whether an axis is one of the mesh's."""
        if not 0 <= number < self.rank:
            raise NoFix(f"the grid at line {self.call.lineno} has no axis {number}, which the body asks for")
        return self.axes.parallel[number]

    def index(self, number: int) -> str:
        """What the body finds of an axis of the pipeline's."""
        name = unused("indices", self.body.function)
        self.told = {name: name, **self.told}
        return f"{name}[{self.axes.sequential.index(number)}]"

    def size(self, number: int) -> str:
        """How long an axis of the pipeline's is, in the body."""
        text = self._grid[number]
        if text.isdecimal():
            return text
        name = unused(f"num_{self.axes.names[number]}", self.body.function)
        self.told[name] = text
        return name

    @property
    def delay_release(self) -> str:
        """For how many steps the pipeline holds on to its inputs, empty for none."""
        value = self._params.get("delay_release")
        return self.names.source.segment(value) if value is not None and ast.unparse(value) != "0" else ""

    def grid(self, parallel: bool) -> str:
        """The grid of the mesh, or that of the pipeline."""
        given = self.arguments.get("grid")
        if given is not None and all(one is parallel for one in self.axes.parallel):
            text = self.names.source.segment(given)
            if isinstance(given, ast.Tuple) or self._grid[0] == f"{text}[0]":
                return text
        return in_tuple(self._grid[number] for number in range(self.rank) if self.axes.parallel[number] is parallel)

    @property
    def grid_names(self) -> str:
        """The names of the mesh's grid, empty where it has none."""
        found = [f'"{name}"' for name, one in zip(self.axes.names, self.axes.parallel, strict=True) if one]
        return in_tuple(found) if found else ""

    @property
    def params(self) -> str | None:
        """The compiler's parameters that are not the pipeline's: empty where all stay as they are, None without any."""
        given = self.arguments.get("compiler_params")
        if given is None:
            return None
        kept = [name for name in self._params if name not in _PIPELINED]
        if len(kept) == len(self._params):
            return "" if kept or not isinstance(given, ast.Call) else None
        if not isinstance(given, ast.Call) or None in self._params:
            raise NoFix(f"the compiler_params at line {given.lineno} are not written out in the call")
        segment = self.names.source.segment
        texts = [segment(keyword) for keyword in given.keywords if keyword.arg in kept]
        return f"{segment(given.func)}({', '.join(texts)})" if texts else None

    def _sizes(self) -> list[str]:
        """The source texts of the grid's sizes. Raises NoFix where even their number is not known."""
        value, names = self.arguments.get("grid"), self.names
        match value:
            case None:
                return []
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if plain(elements):
                return [names.source.segment(element) for element in elements]
            case ast.Constant(value=int()):
                return [names.source.segment(value)]
            case ast.Name(id=name) if isinstance(bound := names.binding(name, value), ast.Constant | ast.Tuple):
                return [f"{name}[{i}]" for i in range(len(bound.elts))] if isinstance(bound, ast.Tuple) else [name]
        known = {len(index_map.args.args) for index_map in self._index_maps()}
        text = names.source.segment(value)
        # One index alone may also be that of a grid which is a number.
        if len(known) == 1 and isinstance(value, ast.Subscript if known == {1} else ast.Name | ast.Subscript):
            return [f"{text}[{i}]" for i in range(known.pop())]
        raise NoFix(f"the grid at line {value.lineno} is not written out")

    def _index_maps(self) -> list[ast.Lambda]:
        sides = [self.arguments[side] for side in ("in_specs", "out_specs") if side in self.arguments]
        specs = [spec for side in sides for spec in specs_of(self.names, side)]
        found = [spec.get("index_map") for spec in specs]
        return [m for m in found if isinstance(m, ast.Lambda) and not m.args.vararg]

    def _semantics(self) -> list[bool]:
        value = self._params.get("dimension_semantics")
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return [True] * self.rank
        known = _strings(value)
        if known is None or len(known) != self.rank or not {"parallel", "sequential"}.issuperset(known):
            raise NoFix(f"the dimension_semantics at line {value.lineno} are not written out for each axis of the grid")
        return [one == "parallel" for one in known]

    def _names_of_axes(self) -> list[str]:
        """A name for each axis: what an index map, or the body, calls it."""
        found: list[str] = []
        maps = [m.args.args for m in self._index_maps() if len(m.args.args) == self.rank]
        for number in range(self.rank):
            called = [m[number].arg for m in maps]
            called += [name for place, name in _named_positions(self.names, self.body.function) if place == number]
            usable = [name for name in called if not name.startswith("_") and name not in found]
            found.append(next(iter(usable), f"d{number}"))
        return found

    # ------------------------------------------------------------------ the function around the body

    def text(self, name: str, body: ast.expr | str, plgpu: str, imports: Imports) -> str:
        """A function ``name`` that runs ``body`` on blocks; its lines end at ``\\n``."""
        self._check_names(body)
        scratch = self.scratch()
        refs = self._refs(len(scratch))
        taken = {n.id for value in self._moved_values(body) for n in _free(self.names, value)}
        taken |= {*scratch, *(ref.lstrip("*") for ref in refs)}
        blocks = Blocks(self.names, self.call, self.axes, taken, self.delay_release, imports)
        arguments = [
            self._run(body, scratch),
            f"grid={self.grid(parallel=False)}",
            *(f"{side}={self._side(side, blocks, imports)}" for side in ("in_specs", "out_specs")),
        ]
        steps = self._params.get("max_concurrent_steps")
        arguments += [f"max_concurrent_steps={self.names.source.segment(steps)}"] if steps is not None else []
        self.moved = blocks.moved
        lines = [
            f'{blocks.variables[number]} = {imports.name("jax.lax")}.axis_index("{self.axes.names[number]}")'
            for number in sorted(blocks.asked_for)
        ]
        tab = self.names.source.indent
        lines += [*blocks.assigned, f"{plgpu}.emit_pipeline(", *(f"{tab}{_indented(a, tab)}," for a in arguments)]
        lines += [f")({', '.join(refs)})"]
        text = "\n".join(
            [f"def {name}({', '.join([*refs, *scratch])}):", *(f"{tab}{_indented(s, tab)}" for s in lines)]
        )
        return f"{text}\n".replace(self.names.source.newline, "\n")

    def _side(self, side: str, blocks: Blocks, imports: Imports) -> str:
        value = self.arguments.get(side)
        if value is not None:
            return blocks.listed(value, side == "in_specs")
        count = self._count(side)
        whole = f"[{imports.name('jax.experimental.pallas')}.BlockSpec()]"
        return whole if count == 1 else f"{whole} * {count}"

    def _moved_values(self, body: ast.expr | str) -> list[ast.AST]:
        """What is no longer evaluated where the kernel is declared, but in its body."""
        moved: list[ast.AST] = [self.arguments[s] for s in ("in_specs", "out_specs") if s in self.arguments]
        grid = self.arguments.get("grid")
        if isinstance(grid, ast.Tuple | ast.List):
            moved += [grid.elts[number] for number in self.axes.sequential]
        elif self.axes.sequential and grid is not None:
            moved.append(grid)
        moved += [self._params[name] for name in _PIPELINED if name in self._params]
        return [*moved, ast.parse(body, mode="eval") if isinstance(body, str) else body]

    def _check_names(self, body: ast.expr | str) -> None:
        """Raises NoFix where a name that moves may mean something else in the function around the body."""
        names, statement = self.names, self.names.statement(self.call)
        outside = [*names.ancestors(statement)]
        between = [node for node in names.ancestors(self.call) if node not in outside]
        if any(isinstance(node, _COMPREHENSIONS) for node in between):
            raise NoFix(f"the kernel at line {self.call.lineno} is declared in a comprehension")
        later = not is_applied(names, self.call)
        loops = any(isinstance(node, ast.For | ast.While | ast.AsyncFor) for node in outside)
        values = self._moved_values(body)
        for text in (node for value in values for node in ast.walk(value) if isinstance(node, ast.Constant)):
            if text.lineno != text.end_lineno:
                raise NoFix(f"the text at line {text.lineno} cannot be indented")
        for name in (name for value in values for name in _free(names, value)):
            bound, home = names.bindings(name.id, name), names.home(name.id, name)
            if home in between:
                raise NoFix(f"`{name.id}` at line {name.lineno} is known within an expression only")
            varies = len(bound) > 1 or (loops and home not in (None, names.source.tree))
            if later and varies and not isinstance(bound[0], ast.arg):
                raise NoFix(f"`{name.id}` at line {name.lineno} may have changed once the kernel is called")

    @property
    def scratch_count(self) -> int | None:
        """How many of the body's last parameters are scratch, None where that is not known."""
        value = self.arguments.get("scratch_shapes")
        if value is None:
            return 0
        return len(value.elts) if isinstance(value, ast.List | ast.Tuple) and plain(value.elts) else None

    def scratch(self) -> list[str]:
        """The body's names for its scratch. Raises NoFix where it does not say them."""
        count, parameters = self.scratch_count, [p.arg for p in self.body.parameters]
        if count == 0:
            return []
        if count is None or self.body.function.args.vararg is not None or len(parameters) <= count:
            raise NoFix(f"which of its Refs are scratch the body at line {self.body.function.lineno} does not say")
        return parameters[len(parameters) - count :]

    def _refs(self, scratch: int) -> list[str]:
        """Names for what the kernel is given."""
        if not scratch:
            return ["*refs"]
        parameters = [p.arg for p in self.body.parameters[:-scratch]]
        named = [f"{bare_name(p) or p}_gmem" for p in parameters]
        return named if len(set(named)) == len(named) else parameters

    def _run(self, body: ast.expr | str, scratch: Sequence[str]) -> str:
        """What the pipeline runs: the body, as far as it wants what the pipeline gives, else a function around it."""
        segment = self.names.source.segment
        before: list[str] = []
        after: list[str] = []
        function = body
        if isinstance(body, ast.Call):
            function, *bound = body.args
            before, after = [*map(segment, bound)], [*map(segment, body.keywords)]
        text = function if isinstance(function, str) else segment(function)
        called = f"({text})" if isinstance(function, ast.Lambda) else text
        told = [*self.told.values()]
        indices = next((name for name, value in self.told.items() if name == value), "")
        if told == [indices] and not (before or after or scratch):
            return text
        given = [*before, *told, *scratch, *after]
        blocks = unused("blocks", NOWHERE, frozenset(re.findall(r"\w+", " ".join([text, *given]))))
        given = [*before, *told, f"*{blocks}", *scratch, *after]
        return f"lambda {indices or '_'}, *{blocks}: {called}({', '.join(given)})"

    def drop_specs(self) -> None:
        """Take out the assignments of specs that nothing asks for any more."""
        names = self.names
        for side in (self.arguments[name] for name in ("in_specs", "out_specs") if name in self.arguments):
            for use in _names_in(side):
                bound, home = names.binding(use.id, use), names.home(use.id, use)
                assign = names.parents.get(bound) if isinstance(bound, ast.expr) else None
                alone = home and all(self.call in names.ancestors(u) for u in names.uses(use.id, home))
                if isinstance(assign, ast.Assign) and len(assign.targets) == 1 and alone:
                    with contextlib.suppress(NoFix):
                        specs_of(names, use)
                        self.moved.append(without_statement(names, assign))

    def _count(self, side: str) -> int:
        """How many operands, or outputs, the kernel has. Raises NoFix where that is not known."""
        outputs = _outputs(self.names, self.arguments.get("out_shape"))
        if side == "out_specs":
            return outputs
        if self.body.function.args.vararg is None:
            return len(self.body.parameters) - len(self.scratch()) - outputs
        outer = self.names.parents[self.call]
        operands = outer.args if isinstance(outer, ast.Call) and outer.func is self.call else []
        if "kernel" in self.arguments and operands and plain(operands):
            return len(operands)
        raise NoFix(f"how many operands the kernel at line {self.call.lineno} has is not known")


def _named_positions(names: Names, function: ast.AST) -> Iterator[tuple[int, str]]:
    """Axes of whose index a function makes a variable, with its name."""
    for call in positions(names, function):
        match names.parents[call]:
            case ast.Assign(targets=[ast.Name(id=name)]) if not asks_for_size(names, call):
                yield axis(call), name


def _outputs(names: Names, value: ast.expr | None) -> int:
    match value:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return len(elements)
        case ast.Name(id=name) if isinstance(bound := names.binding(name, value), ast.expr):
            return _outputs(names, bound)
        case ast.Call() if names.resolve(value.func) == "jax.ShapeDtypeStruct":
            return 1
    raise NoFix("how many outputs the kernel has is not known")


def _strings(value: ast.expr) -> list[str] | None:
    """The texts of a list of such, None where it is not written out."""
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            texts = [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            return texts if len(texts) == len(elements) else None
        case ast.BinOp(op=ast.Mult(), left=left, right=ast.Constant(value=int(times))):
            found = _strings(left)
            return found * times if found is not None else None
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            parts = [_strings(left), _strings(right)]
            return [text for part in parts for text in part or ()] if None not in parts else None
    return None


def _names_in(value: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(value) if isinstance(node, ast.Name))


def _free(names: Names, value: ast.AST) -> Iterator[ast.Name]:
    """Names in a value that it does not bind itself."""
    inside = set(ast.walk(value))
    return (name for name in _names_in(value) if names.home(name.id, name) not in inside)


def _indented(text: str, indent: str) -> str:
    return re.sub(r"(?<=\n)(?=[^\r\n])", lambda _: indent, text)
