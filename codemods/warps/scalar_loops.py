"""A loop over elements in place of an array operation: ``o[...] = x[...] * 2`` becomes ``o[i] = x[i] * 2``."""

import ast
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Operation
from mgpu_fix.source import Splice

from ..imports import Imports
from .hoists import as_line
from .primitives import GET, SCALAR, SETS, SPREADS
from .regions import PALLAS, WarpRegion, constant, own_statements
from .scalar_identities import fitted, minus, product

#: the most elements that a warp is made to store one by one
MOST_ELEMENTS = 1024
#: powers, of which those that can be written as products are
_SQUARES = frozenset({"integer_pow", "square"})

#: what a function asks an array for that one number has not, or not the same
_SHAPES = frozenset({"shape", "size", "ndim", "T", "mT", "at", "reshape", "nbytes", "itemsize"})

#: calls that make an array of one value: where the value stands among the arguments, or the value itself
_FILLS: dict[str, int | str] = {
    "full": 1, "full_like": 1, "zeros": "0", "zeros_like": "0", "ones": "1", "ones_like": "1",
}  # fmt: skip


#: what a kernel's outputs are declared by
_OUTPUTS = frozenset({"out_type", "out_shape"})


@dataclass(frozen=True)
class _Group:
    """Statements of one block, side by side, that go into one loop nest over ``shape``."""

    block: ast.AST
    first: int
    last: int
    shape: tuple[int, ...]


class ScalarLoops:
    """Loops for every array operation of a region. Raises NoFix where one of them cannot be done by elements."""

    def __init__(self, region: WarpRegion, semantics: str, imports: Imports) -> None:
        self.region, self.source, self.names = region, region.source, region.names
        self._values: dict[tuple[int, int], Operation] = {}
        self._stores: dict[tuple[int, int], Operation] = {}
        for operation, span in region.operations:
            (self._stores if operation.name in SETS else self._values)[span] = operation
        self._check_operations(semantics)
        self._imports = imports
        self._arrays: dict[str, tuple[int, ...]] = {}
        self._slices: set[ast.Assign] = set()
        self.groups = list(self._groups())
        self._check_complete()

    @property
    def elements(self) -> int:
        """How many elements are stored one by one."""
        return sum(math.prod(g.shape) for g in self.groups)

    def _check_operations(self, semantics: str) -> None:
        for operation, span in self.region.operations:
            line = self.source.position(span[0])[0]
            used = operation.name in SETS | {GET} or operation.shape
            if used and operation.space == "smem" and semantics == "Warpgroup":
                raise NoFix(f"a Ref in SMEM is used at line {line}, which no warp can do element by element")
            if not operation.shape:
                continue
            if operation.name not in SCALAR | SPREADS | SETS | _SQUARES | {GET}:
                raise NoFix(f"`{operation.name}` at line {line} is not done element by element at warp level")
        most = max((math.prod(o.shape) for o in self._stores.values()), default=0)
        if most > MOST_ELEMENTS:
            raise NoFix(f"a loop over {most} elements would be too slow")

    # ------------------------------------------------------------------ what goes into which loop

    def _groups(self) -> Iterator[_Group]:
        for block, statements in _blocks(self.region.function):
            run: list[tuple[int, tuple[int, ...]]] = []
            for i, statement in enumerate(statements):
                shape = self._array_shape(statement)
                if shape is None:
                    self._check_traced(statement)
                    continue
                between = statements[run[-1][0] + 1 : i] if run else []
                ordered = self._crosses([statements[n] for n, _ in run], statement)
                if run and (shape != run[-1][1] or ordered or not all(map(self._is_scalar, between))):
                    yield self._group(block, statements, run)
                    run = []
                run.append((i, shape))
            if run:
                yield self._group(block, statements, run)

    def _crosses(self, before: Sequence[ast.stmt], statement: ast.stmt) -> bool:
        """Whether a statement uses a Ref that one of those before it stores, so that it must come after all of it."""
        stored = {o.ref for s in before for o in self._inside(s) if o.name in SETS}
        return any(o.ref in stored for o in self._inside(statement) if o.ref is not None)

    def _inside(self, node: ast.AST) -> list[Operation]:
        start, end = self.source.bounds(node)
        return [o for o, (a, b) in self.region.operations if start <= a and b <= end]

    def _check_traced(self, statement: ast.stmt) -> None:
        """Raises NoFix where a statement stores, and was not run."""
        match statement:
            case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign(target=ast.Subscript()):
                if not self._inside(statement):
                    raise NoFix(f"line {statement.lineno} was not run")

    def _is_scalar(self, statement: ast.stmt) -> bool:
        """Whether a statement only names a number, so that it may be computed again for each element."""
        match statement:
            case ast.Assign(targets=[ast.Name()]):
                return self._scalar(statement)
        return False

    def _group(self, block: ast.AST, statements: Sequence[ast.stmt], run: list[tuple[int, tuple[int, ...]]]) -> _Group:
        first, last = run[0][0], run[-1][0]
        if not any(self._target(s) for s in statements[first : last + 1]):
            raise NoFix(f"what line {statements[first].lineno} computes is not stored beside it")
        for statement in statements[first : last + 1]:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
                    inside = {n for s in statements[first : last + 1] for n in ast.walk(s)}
                    home = self.names.home(name, statement)
                    uses = self.names.uses(name, home) if home else []
                    if any(use not in inside for use in uses):
                        raise NoFix(f"`{name}` is used by more than one loop")
        return _Group(block, first, last, run[0][1])

    def _array_shape(self, statement: ast.stmt) -> tuple[int, ...] | None:
        """Shape of what a statement stores or names; None where it deals with no array."""
        target = self._target(statement)
        if target is not None:
            shape = self._stores[self.source.bounds(target)].shape
            return shape or (None if self._scalar(statement) else shape)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found = self._shape(value)
                if found:
                    self._arrays[name] = found
                    return found
            case ast.AugAssign(target=ast.Name(id=name)) if name in self._arrays:
                return self._arrays[name]
        return None

    def _target(self, statement: ast.stmt) -> ast.Subscript | None:
        match statement:
            case ast.Assign(targets=[ast.Subscript() as target]) | ast.AugAssign(target=ast.Subscript() as target):
                return target if self.source.bounds(target) in self._stores else None
        return None

    def _scalar(self, node: ast.AST) -> bool:
        """Whether nothing in ``node`` is an array."""
        return not any(o.shape for o in self._inside(node))

    def _shape(self, node: ast.expr) -> tuple[int, ...]:
        if isinstance(node, ast.Name):
            return self._arrays.get(node.id, ())
        operation = self._values.get(self.source.bounds(node))
        return operation.shape if operation else ()

    def _check_complete(self) -> None:
        """Raises NoFix where an array operation is in no group."""
        grouped: list[tuple[int, int]] = []
        for group in self.groups:
            body = _statements(group.block)
            grouped.append((self.source.bounds(body[group.first])[0], self.source.bounds(body[group.last])[1]))
        for operation, (start, end) in self.region.operations:
            if operation.shape and not any(a <= start and end <= b for a, b in grouped):
                raise NoFix(f"line {self.source.position(start)[0]} uses an array in a way that is not known")
        if not self.groups:
            raise NoFix("it deals with no array")

    # ------------------------------------------------------------------ edits

    def change(self, splice: Splice) -> None:
        """Make the edits, which are in the statements of ``splice``. Raises NoFix."""
        indices = self._free_names(max(len(g.shape) for g in self.groups))
        blocks: dict[ast.AST, list[_Group]] = {}
        for group in self.groups:
            blocks.setdefault(group.block, []).append(group)
            for statement in _statements(group.block)[group.first : group.last + 1]:
                self._scalarise_statement(splice, statement, group.shape, indices)
        unused = self._unused_slices()
        for assignment in unused:
            blocks.setdefault(self.names.parents[assignment], [])
        for block, groups in blocks.items():
            change = functools.partial(self._looped, block, groups, unused, indices)
            splice.on(block, change, (cst.FunctionDef, cst.If, cst.For, cst.With))

    def _free_names(self, count: int) -> list[str]:
        """Names for the indices, which nothing in the kernel has."""
        around = [n for n in self.names.ancestors(self.region.function) if isinstance(n, ast.FunctionDef)]
        inside = list(ast.walk(around[-1] if around else self.source.tree))
        taken = {n.id for n in inside if isinstance(n, ast.Name)} | {n.arg for n in inside if isinstance(n, ast.arg)}
        usual = itertools.chain("ijkmn", (f"i{k}" for k in itertools.count()))
        return list(itertools.islice((n for n in usual if n not in taken), count))

    def _looped(
        self,
        block: ast.AST,
        groups: Sequence[_Group],
        unused: Sequence[ast.stmt],
        indices: Sequence[str],
        node: Any,
    ) -> Any:
        """The block with each group in a loop, and without what nobody uses any more."""
        if not isinstance(node.body, cst.IndentedBlock):
            raise NoFix("the statement stands in a one-line block")
        statements: list[Any] = list(node.body.body)
        if len(statements) != len(_statements(block)):
            raise NoFix("the region has several statements on one line")
        for i, statement in reversed(list(enumerate(_statements(block)))):
            if statement in unused and i + 1 < len(statements):
                old, after = statements[i], statements[i + 1]
                statements[i] = None
                lines = [*old.leading_lines, *as_line(old.trailing_whitespace), *after.leading_lines]
                statements[i + 1] = after.with_changes(leading_lines=lines)
        for group in reversed(groups):
            inside = [s for s in statements[group.first : group.last + 1] if s is not None]
            statements[group.first : group.last + 1] = [self._loop(self._bounds(group), indices, inside)]
        return node.with_changes(body=node.body.with_changes(body=[s for s in statements if s is not None]))

    def _bounds(self, group: _Group) -> list[str]:
        """How far each index goes. The kernel may be called with other shapes, too, but where its declaration has these
        written out: else the Ref that is stored to is asked for its own."""
        numbers = [str(n) for n in group.shape]
        statements = _statements(group.block)[group.first : group.last + 1]
        target = next(t for s in statements if (t := self._target(s)) is not None)
        parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        sizes = list(self._sizes(self.source.segment(target.value), parts, len(numbers)))
        if self._is_written_out(group.shape):
            # What is called a size in the source stays one.
            named = len(sizes) == len(numbers) and not any(".shape[" in s for s in sizes)
            return sizes if named else numbers
        if len(sizes) == len(numbers):
            return sizes
        raise NoFix("the kernel may be called with several shapes, and how far the loop goes is not known")

    def _sizes(self, ref: str, parts: Sequence[ast.expr], rank: int) -> Iterator[str]:
        """How large each axis is that is stored to, as the source says it or the Ref; ``rank`` counts these axes."""
        kept = [self._size(p) for p in parts]
        rest = rank - sum(k is not None for k, p in zip(kept, parts, strict=True) if not _is_ellipsis(p))
        if not any(map(_is_ellipsis, parts)):
            parts, kept = [*parts, ast.Constant(...)], [*kept, None]
        axis = 0
        for part, size in zip(parts, kept, strict=True):
            if _is_ellipsis(part):
                yield from (f"{ref}.shape[{axis + i}]" for i in range(rest))
                axis += rest
                continue
            if size is not None:
                yield size or f"{ref}.shape[{axis}]"
            axis += 1

    def _is_written_out(self, shape: Sequence[int]) -> bool:
        """Whether the kernel is declared where it is defined, once, with these sizes as numbers."""
        opening = self.region.opening
        kernel = next((n for n in (opening, *self.names.ancestors(opening)) if self._is_declared(n)), None)
        if not isinstance(kernel, ast.FunctionDef) or not isinstance(self.names.parents[kernel], ast.Module):
            return False
        inside = (node for decorator in kernel.decorator_list for node in ast.walk(decorator))
        return {*shape} <= {node.value for node in inside if isinstance(node, ast.Constant)}

    def _is_declared(self, node: ast.AST) -> bool:
        given = [d for d in getattr(node, "decorator_list", ()) if isinstance(d, ast.Call)]
        return any(k.arg in _OUTPUTS for d in given for k in d.keywords)

    def _size(self, part: ast.expr) -> str | None:
        """Text of the size of a part of an index: empty for a whole axis, None where it takes the axis away."""
        match part:
            case ast.Slice(lower=None, upper=None, step=None):
                return ""
            case ast.Slice(lower=None | ast.Constant(value=0), upper=ast.Constant(value=int(stop)), step=None):
                return str(stop) if stop > 0 else None
            case ast.Call(func=func, args=[_, size], keywords=[]) if self._is_slice(func):
                return self.source.segment(size)
            case ast.Call(func=func, args=[_], keywords=[ast.keyword(arg="size", value=size)]) if self._is_slice(func):
                return self.source.segment(size)
            case ast.Name():
                bound = self.names.binding(part.id, part)
                return self._size(bound) if isinstance(bound, ast.Call) else None
        return None

    def _loop(self, bounds: Sequence[str], indices: Sequence[str], statements: Sequence[Any]) -> cst.FunctionDef:
        first, *rest = statements
        inner: Any = [first.with_changes(leading_lines=[]), *rest]
        for bound, index in reversed(list(zip(bounds, indices, strict=False))):
            loop = cst.parse_expression(f"{self._imports.name(PALLAS)}.loop(0, {bound})")
            parameters = cst.Parameters([cst.Param(cst.Name(index))])
            inner = [cst.FunctionDef(cst.Name("_"), parameters, cst.IndentedBlock(inner), [cst.Decorator(loop)])]
        [outermost] = inner
        made: cst.FunctionDef = outermost.with_changes(leading_lines=first.leading_lines)
        return made

    def _scalarise_statement(
        self, splice: Splice, statement: ast.stmt, shape: tuple[int, ...], indices: Sequence[str]
    ) -> None:
        target = self._target(statement)
        if target is not None:
            self._index(splice, target, shape, shape, indices)
        value = statement.value  # type: ignore[attr-defined]
        if target is not None and self._is_outer(statement):
            self._constant(splice, value, self._stores[self.source.bounds(target)].dtype, shape, indices)
        elif isinstance(statement, ast.Assign | ast.AugAssign):
            self._scalarise(splice, value, shape, indices)

    def _is_outer(self, statement: ast.stmt) -> bool:
        """Whether an array that was made outside of the trace, or of the region, comes into a statement."""
        return any(o.outer and o.shape for o in self._inside(statement))

    def _constant(
        self, splice: Splice, node: ast.expr, dtype: str, shape: tuple[int, ...], indices: Sequence[str]
    ) -> None:
        """Make an array of NumPy's, which no operation of the trace stands for, one number."""
        match node:
            case ast.Call(func=func) if (self.names.resolve(func) or "").startswith("numpy."):
                name = (self.names.resolve(func) or "").removeprefix("numpy.")
                if name in _FILLS:
                    self._fill(splice, node, _FILLS[name], dtype)
                    return
                if name == "arange" and len(node.args) == 1 and len(shape) == 1:
                    self._replace(splice, node, indices[0], dtype)
                    return
        raise NoFix(f"an array from outside the region is used at line {node.lineno}")

    def _scalarise(self, splice: Splice, node: ast.expr, shape: tuple[int, ...], indices: Sequence[str]) -> None:
        """Make ``node`` give one element of what it gave."""
        own = self._shape(node)
        if not own:
            if not self._scalar(node):
                raise NoFix(f"line {node.lineno} makes one number of an array")
            return
        operation = self._values.get(self.source.bounds(node))
        match node:
            case ast.Name():
                if own != shape:
                    raise NoFix(f"`{node.id}` has another shape than what is stored at line {node.lineno}")
            case ast.Subscript() if operation and operation.name == GET:
                self._index(splice, node, own, shape, indices)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self._scalarise(splice, operand, shape, indices)
                dtype = operation.dtype if operation else ""
                splice.on(node, lambda old: fitted(self.names, node, minus(old.expression, dtype)), cst.UnaryOperation)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2)) if isinstance(
                left, ast.Name | ast.Subscript
            ):
                self._scalarise(splice, left, shape, indices)
                splice.on(node, lambda old: fitted(self.names, node, product(old.left, 2)), cst.BinaryOperation)
            case ast.BinOp(op=ast.Pow()):
                raise NoFix(f"a power at line {node.lineno} is not done element by element at warp level")
            case ast.Call():
                self._call(splice, node, own, shape, indices)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.IfExp() | ast.Attribute():
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._scalarise(splice, child, shape, indices)
            case _:
                raise NoFix(f"line {node.lineno} makes an array in a way that is not known")

    def _call(
        self,
        splice: Splice,
        node: ast.Call,
        own: tuple[int, ...],
        shape: tuple[int, ...],
        indices: Sequence[str],
    ) -> None:
        operation = self._values[self.source.bounds(node)]
        dotted = self.names.resolve(node.func) or ""
        library, _, name = dotted.rpartition(".")
        if library in ("jax.numpy", "jax.lax", "numpy"):
            if name in _FILLS:
                self._fill(splice, node, _FILLS[name], operation.dtype)
                return
            if name == "arange" and len(node.args) == 1 and len(own) == 1:
                self._replace(splice, node, f"{indices[len(shape) - 1]}", operation.dtype)
                return
            if name in ("broadcasted_iota", "iota") and len(node.args) == 3 and own == shape:
                axis = node.args[2]
                if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
                    self._replace(splice, node, indices[axis.value], operation.dtype)
                    return
        if operation.name in SPREADS and name != "where":
            raise NoFix(f"`{name}` at line {node.lineno} spreads a value in a way that is not known")
        if not library.startswith(("jax", "numpy")):
            self._check_elementwise(node)
        if isinstance(node.func, ast.Attribute) and self._shape(node.func.value):
            self._scalarise(splice, node.func.value, shape, indices)
        for argument in [*node.args, *(k.value for k in node.keywords)]:
            if isinstance(argument, ast.Starred):
                raise NoFix(f"line {node.lineno} makes an array in a way that is not known")
            self._scalarise(splice, argument, shape, indices)

    def _check_elementwise(self, call: ast.Call) -> None:
        """Raises NoFix where a function that is no library's might look at the shape of what it is given."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("astype", "clip"):
            return
        function = self.names.binding(call.func.id, call.func) if isinstance(call.func, ast.Name) else None
        if isinstance(function, ast.FunctionDef):
            inside = list(ast.walk(function))
            calls = [self.names.resolve(n.func) or "" for n in inside if isinstance(n, ast.Call)]
            looks = any(isinstance(n, ast.Attribute) and n.attr in _SHAPES for n in inside)
            if not looks and all(c.startswith(("jax.numpy.", "jax.lax.")) for c in calls):
                return
        raise NoFix(f"what `{self.source.segment(call.func)}` at line {call.lineno} does with one number is not known")

    def _fill(self, splice: Splice, node: ast.Call, value: int | str, dtype: str) -> None:
        text = value
        if isinstance(value, int):
            named = next((k.value for k in node.keywords if k.arg == "fill_value"), None)
            given = node.args[value] if len(node.args) > value else named
            if given is None or not self._scalar(given):
                raise NoFix(f"what fills the array at line {node.lineno} is not known")
            text = self.source.segment(given)
            if _is_weak(self.names.resolve(node.func) or "", node):
                plain = isinstance(given, ast.Constant | ast.Name)
                splice.on(node, lambda _: cst.parse_expression(text if plain else f"({text})"), cst.Call)
                return
        made = cst.parse_expression(f"{self._type(dtype)}({text})")
        splice.on(node, lambda _: made, cst.Call)

    def _replace(self, splice: Splice, node: ast.Call, index: str, dtype: str) -> None:
        text = index if dtype == "int32" else f"{index}.astype({self._type(dtype)})"
        splice.on(node, lambda _: cst.parse_expression(text), cst.Call)

    def _type(self, dtype: str) -> str:
        return f"{self._imports.name('jax.numpy')}.{'bool_' if dtype == 'bool' else dtype}"

    # ------------------------------------------------------------------ indices

    def _index(
        self,
        splice: Splice,
        node: ast.Subscript,
        own: tuple[int, ...],
        shape: tuple[int, ...],
        indices: Sequence[str],
    ) -> None:
        """Make a load or store of an array one of an element."""
        if len(own) > len(shape):
            raise NoFix(f"line {node.lineno} uses arrays of different shapes")
        elements = iter(
            "0" if n == 1 and m != 1 else index
            for n, m, index in zip(own, shape[len(shape) - len(own) :], indices[len(shape) - len(own) :], strict=False)
        )
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        cut = [self._cut(part) for part in parts]
        missing = len(own) - sum(c is not None for c in cut)
        if missing < 0:
            raise NoFix(f"the index at line {node.lineno} is of a form that is not known")
        whole = [isinstance(p, ast.Constant) and p.value is ... for p in parts]
        texts: list[str] = []
        for part, start, is_ellipsis in zip(parts, cut, whole, strict=True):
            if is_ellipsis:
                texts += itertools.islice(elements, missing)
                missing = 0
            elif start is None:
                texts.append(self.source.segment(part))
            else:
                index = next(elements)
                texts.append(index if start == "0" else f"{start} + {index}")
        texts += elements
        new = cst.parse_expression(f"x[{', '.join(texts)}]")
        assert isinstance(new, cst.Subscript)
        splice.on(node, lambda old: old.with_changes(slice=new.slice), cst.Subscript)

    def _cut(self, part: ast.expr) -> str | None:
        """Where a part of an index that keeps its dimension starts; None for one that takes a single place, or
        ``...``."""
        match part:
            case ast.Slice(lower=None, step=None):
                return "0"
            case ast.Slice(lower=ast.expr() as lower, step=None):
                # A slice counts from the end where its start is negative, the sum with an index does not.
                value = constant(self.names, lower)
                if not isinstance(value, int) or value < 0:
                    raise NoFix(f"whether the slice at line {part.lineno} counts from the end is not known")
                return self._term(lower)
            case ast.Slice():
                raise NoFix(f"the slice at line {part.lineno} has a step")
            case ast.Call(func=func, args=args, keywords=keywords) if self._is_slice(func):
                if any(k.arg != "size" for k in keywords) or len(args) + len(keywords) > 2 or not args:
                    raise NoFix(f"the slice at line {part.lineno} has a stride")
                return self._term(args[0]) if len(args) + len(keywords) == 2 else "0"
            case ast.UnaryOp(op=ast.USub()):
                raise NoFix(f"the index at line {part.lineno} counts from the end")
            case ast.Name():
                home = self.names.home(part.id, part)
                bound = self.names.binding(part.id, part)
                if isinstance(bound, ast.Call) and self._is_slice(bound.func) and home is not None:
                    statement = self.names.statement(bound)
                    if isinstance(statement, ast.Assign):
                        self._slices.add(statement)
                    for name in (n for n in ast.walk(bound) if isinstance(n, ast.Name)):
                        if len(self.names.bindings(name.id, name)) > 1:
                            raise NoFix(f"`{name.id}`, which a slice starts at, is bound again")
                    return self._cut(bound)
            case ast.Constant(value=None):
                raise NoFix(f"the index at line {part.lineno} adds a dimension")
        return None

    def _term(self, node: ast.expr) -> str:
        """Text of an expression to which something is added."""
        text = self.source.segment(node)
        ops = ast.Add | ast.Sub | ast.Mult
        plain = isinstance(node, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript)
        return text if plain or (isinstance(node, ast.BinOp) and isinstance(node.op, ops)) else f"({text})"

    def _is_slice(self, func: ast.expr) -> bool:
        return self.names.resolve(func) in (f"{PALLAS}.ds", f"{PALLAS}.dslice")

    def _unused_slices(self) -> list[ast.Assign]:
        """Assignments in the region of slices, all of whose uses were spelled out."""
        spelled: set[ast.AST] = set()
        for group in self.groups:
            for statement in _statements(group.block)[group.first : group.last + 1]:
                spelled |= set(ast.walk(statement))
        found = []
        for assignment in own_statements(self.region.function):
            if assignment in self._slices:
                assert isinstance(assignment, ast.Assign)
                [target] = assignment.targets
                if isinstance(target, ast.Name):
                    home = self.names.home(target.id, target)
                    uses = self.names.uses(target.id, home) if home else []
                    if all(use in spelled for use in uses):
                        found.append(assignment)
        return found


def _is_weak(dotted: str, call: ast.Call) -> bool:
    """Whether ``jnp.full`` is given no dtype, so that its elements give way to others as plain numbers do."""
    return dotted == "jax.numpy.full" and len(call.args) < 3 and not any(k.arg == "dtype" for k in call.keywords)


def _blocks(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.If | ast.For | ast.With):
            yield node, node.body


def _statements(block: ast.AST) -> list[ast.stmt]:
    return block.body  # type: ignore[attr-defined,no-any-return]


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
