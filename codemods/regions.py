"""Warp-level regions in the source: the function that one is, which warps run what in it, and moving it out."""

import ast
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Operation, Region, Span
from mgpu_fix.source import Names, SourceFile, Splice

from .primitives import COMPUTES, LOADS, STORES

#: warps in a warpgroup
WARPS = frozenset(range(4))

#: what it costs to move work out of a region
WHOLE_WARPGROUP = "every warp of the warpgroup takes part, also those that had passed it by"

#: the operation that calls a function of ``plgpu.inline_mgpu``
INLINE = "inline_mgpu"

PALLAS = "jax.experimental.pallas"


@dataclass(frozen=True)
class Guard:
    """A ``pl.when`` whose condition depends on the warp: ``rest`` are the parts of it that do not."""

    function: ast.FunctionDef
    warps: frozenset[int]
    rest: tuple[ast.expr, ...]


class WarpRegion:
    """A warp-level region. ``function`` is its body, ``opening`` the statement that runs it: the function itself where
    it is decorated. Raises NoFix where it is not found or is of a form that is not known."""

    def __init__(self, source: SourceFile, names: Names, facts: Region) -> None:
        self.source, self.names, self.facts = source, names, facts
        if facts.span.path != source.path:
            raise NoFix(f"the warp-level region stands in {facts.span.path}")
        self._at = _offsets(source, facts.span)
        self.opening, self.function = self._find()
        self.scope = names.scope(self.opening)
        first, last = source.bounds(self.function)
        self.operations = [(o, span) for o in facts.operations if (span := self._own(o, first, last))]
        self._nodes = {source.bounds(n): n for n in ast.walk(self.function) if hasattr(n, "lineno")}
        if not all(span in self._nodes for o, span in self.operations if o.name in LOADS | STORES):
            raise NoFix("the file is not what was traced")
        #: where the region asks which warp it is, and the names that it gives the answer
        self._asking = {span for o, span in self.operations if o.name == "axis_index" and o.warp}
        self.ids = self._warp_ids()
        self.guards: list[Guard] = []
        #: every function that is run in place, innermost guards with the warps that get there
        self._warps: dict[ast.FunctionDef, frozenset[int]] = {self.function: WARPS}
        self._descend(self.function, WARPS)

    def _find(self) -> tuple[ast.stmt, ast.FunctionDef]:
        for function in self.names.nodes(ast.FunctionDef):
            for decorator in function.decorator_list:
                if self._holds(decorator):
                    if len(function.decorator_list) > 1:
                        raise NoFix(f"the warp-level region at line {function.lineno} has several decorators")
                    return function, function
        for call in self.names.nodes(ast.Call):
            if self.source.bounds(call) == self._at and isinstance(statement := self.names.parents[call], ast.Expr):
                body = call.args[0] if len(call.args) == 1 else call.func
                function_ = self.names.binding(body.id, body) if isinstance(body, ast.Name) else None
                if isinstance(function_, ast.FunctionDef) and self._only_here(function_, statement):
                    return statement, function_
        raise NoFix(f"the function of the warp-level region at line {self.facts.span.line} is not found")

    def _holds(self, node: ast.AST) -> bool:
        start, end = self.source.bounds(node)
        return start <= self._at[0] and self._at[1] <= end

    def _only_here(self, function: ast.FunctionDef, statement: ast.stmt) -> bool:
        """Whether a function is defined among the statements of the one that runs it, and used by no other."""
        scope = self.names.scope(statement)
        siblings = getattr(self.names.parents[statement], "body", ())
        decorated = [d for d in function.decorator_list if not self._opens(d)]
        return function in siblings and not decorated and len(self.names.uses(function.name, scope)) == 1

    def _opens(self, decorator: ast.expr) -> bool:
        return isinstance(decorator, ast.Call) and self.names.resolve(decorator.func) == f"{PALLAS}.kernel"

    def _own(self, operation: Operation, first: int, last: int) -> tuple[int, int] | None:
        """Where in this region's source an operation is done; the innermost place that is in it."""
        for span in operation.spans:
            if span.path == self.source.path:
                start, end = _offsets(self.source, span)
                if first <= start and end <= last:
                    return start, end
        return None

    def _warp_ids(self) -> set[str]:
        """Names for the warp's number."""
        ids = {a.arg for a in self.function.args.args[:1]}
        for node in ast.walk(self.function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_asking(value):
                    ids.add(name)
        return ids

    def _is_asking(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.source.bounds(node) in self._asking

    # ------------------------------------------------------------------ guards

    def _descend(self, function: ast.FunctionDef, warps: frozenset[int]) -> None:
        for statement in own_statements(function):
            if not isinstance(statement, ast.FunctionDef):
                continue
            match statement.decorator_list:
                case [ast.Call(func=func, args=[condition], keywords=[])] if self._is("when", func):
                    found = self._condition(condition)
                    if found is not None:
                        guard = Guard(statement, found[0] & warps, found[1])
                        self.guards.append(guard)
                        self._enter(statement, guard.warps)
                    else:
                        self._enter(statement, warps)
                case [ast.Call(func=func)] if self._is("loop", func):
                    self._enter(statement, warps)

    def _enter(self, function: ast.FunctionDef, warps: frozenset[int]) -> None:
        self._warps[function] = warps
        self._descend(function, warps)

    def _is(self, name: str, node: ast.expr) -> bool:
        return self.names.resolve(node) == f"{PALLAS}.{name}"

    def _condition(self, condition: ast.expr) -> tuple[frozenset[int], tuple[ast.expr, ...]] | None:
        """The warps that a condition lets through, and its parts that do not ask for the warp; None if none does."""
        if not self.asks(condition):
            return None
        warps, rest = WARPS, []
        for part in _conjuncts(self.names, condition):
            if not self.asks(part):
                rest.append(part)
                continue
            found = self._let_through(part)
            if found is None:
                raise NoFix(f"`{self.source.segment(part)}` is no comparison of the warp's number with a constant")
            warps &= found
        return warps, tuple(rest)

    def asks(self, node: ast.AST) -> bool:
        """Whether an expression depends on the warp's number, by its own name or by one computed from it here."""
        return any(self._tells_warp(n) for n in ast.walk(node))

    def _tells_warp(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Name):
            return self._is_asking(node)
        value = self._derived(node)
        return node.id in self.ids or (value is not None and self.asks(value))

    def _is_warp(self, node: ast.expr) -> bool:
        """Whether an expression is the warp's number itself."""
        return self._is_asking(node) or (isinstance(node, ast.Name) and node.id in self.ids)

    def _derived(self, name: ast.Name) -> ast.expr | None:
        """The value of a name that the region itself gives one."""
        bound = self.names.binding(name.id, name)
        home = self.names.home(name.id, name)
        inside = home is not None and (home is self.function or self.function in self.names.ancestors(home))
        return bound if inside and isinstance(bound, ast.expr) and not isinstance(bound, ast.Name) else None

    def _let_through(self, part: ast.expr) -> frozenset[int] | None:
        if isinstance(part, ast.Name):
            value = self._derived(part)
            found = self._condition(value) if value is not None else None
            return found[0] if found and not found[1] else None
        match part:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                swapped = self._is_warp(right)
                warp, other = (right, left) if swapped else (left, right)
                number = constant(self.names, other)
                compare = _COMPARE.get(type(op))
                if self._is_warp(warp) and compare and isinstance(number, int):
                    return frozenset(w for w in WARPS if (compare(number, w) if swapped else compare(w, number)))
        return None

    def warps_at(self, node: ast.AST) -> frozenset[int]:
        """The warps that run a statement of the region."""
        functions = (n for n in self.names.ancestors(node) if isinstance(n, ast.FunctionDef) and n in self._warps)
        return self._warps[next(functions, self.function)]

    # ------------------------------------------------------------------ moving it out

    def check_movable(self, allowed: frozenset[str] = frozenset()) -> None:
        """Raises NoFix unless the whole warpgroup can do once what the region does, in its place.

        ``allowed`` names operations that are taken for ones which only compute.
        """
        self._check_operations(COMPUTES | LOADS | STORES | allowed)
        self._check_warps()
        self._check_statements()
        self._renamed()

    def check_repeatable(self) -> None:
        """Raises NoFix unless the whole warpgroup can do, for one warp after the other, what the region does."""
        self._check_operations(COMPUTES | LOADS | STORES)
        if not self.keeps_order:
            raise NoFix("the region reads what it stores, and its warps run in no order")
        if self.opening is not self.function or len(self.ids) != 1:
            raise NoFix("the region is not of the form that can be repeated for each warp")
        self._check_statements_of([self.function])
        self._check_names()

    @property
    def keeps_order(self) -> bool:
        """Whether the region reads nothing that it stores, so that its stores may come in any order."""
        stored = {o.ref for o in self.facts.operations if o.name in STORES}
        return stored.isdisjoint(o.ref for o in self.facts.operations if o.name in LOADS)

    def _check_operations(self, known: frozenset[str]) -> None:
        for operation in self.facts.operations:
            if operation.name not in known:
                line = self.source.position(self._own_or_all(operation)[0])[0]
                raise NoFix(f"the region also does `{operation.name}` at line {line}, whose order and warp must stay")

    def _own_or_all(self, operation: Operation) -> tuple[int, int]:
        return next((span for o, span in self.operations if o is operation), self._at)

    def _check_warps(self) -> None:
        for operation, span in self.operations:
            if operation.name not in STORES:
                continue
            if operation.warp:
                raise NoFix(f"each warp stores another value or place at line {self.source.position(span[0])[0]}")
            warps = self.warps_at(self._nodes[span])
            if not warps:
                raise NoFix(f"no warp gets to line {self.source.position(span[0])[0]}")
            if len(warps) > 1 and not self.keeps_order:
                raise NoFix("several warps run the region, and it reads what it stores")
        if len(self.operations) < len([o for o in self.facts.operations if o.spans]):
            raise NoFix("part of the region stands in another place")

    def _check_statements(self) -> None:
        self._check_statements_of(self._moved())
        dropped = {id(n) for g in self.guards for n in ast.walk(g.function.decorator_list[0])}
        assigned = {id(n) for s in self._dropped_assignments() for n in ast.walk(s)}
        for node in ast.walk(self.function):
            stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
            if self._tells_warp(node) and not stored and id(node) not in dropped | assigned:
                raise NoFix(f"line {getattr(node, 'lineno', '?')} depends on which warp runs it")

    def _check_statements_of(self, functions: Sequence[ast.FunctionDef]) -> None:
        for node in itertools.chain.from_iterable(map(own_statements, functions)):
            if isinstance(node, ast.Return | ast.Nonlocal | ast.Global):
                raise NoFix(f"the region has a `{type(node).__name__.lower()}` at line {node.lineno}")

    def _dropped_assignments(self) -> list[ast.Assign]:
        """Assignments of what depends on the warp, which only the guards need."""
        found = []
        for statement in own_statements(self.function):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in self.ids or self.asks(value):
                    found.append(statement)
        return found

    def _check_names(self) -> None:
        """Raises NoFix where a name that the region binds means something else around it."""
        if clash := next(iter(self._renamed()), None):
            raise NoFix(f"`{clash.id}`, which the region binds, is also used around it")

    def _renamed(self) -> dict[ast.Name, str]:
        """New names, by the places of the old ones, for what the region binds and means something else around it.

        Raises NoFix where that is a function.
        """
        inside = set(ast.walk(self.function))
        around = [n for n in ast.walk(self.scope) if isinstance(n, ast.Name) and n not in inside]
        taken = {n.id for n in ast.walk(self.scope) if isinstance(n, ast.Name)} | set(self.names.members(self.scope))
        # What another function in the kernel binds for itself is nothing to the kernel.
        used = {n.id for n in around if not self._is_inner(self.names.home(n.id, n))}
        used |= {a.arg for a in ast.walk(getattr(self.scope, "args", self.scope)) if isinstance(a, ast.arg)}
        dropped = {n for s in self._dropped_assignments() for n in ast.walk(s)}
        new: dict[ast.Name, str] = {}
        for function in self._moved():
            parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            for name, bound in self.names.members(function).items():
                if name in parameters or name == "_" or name not in used or all(b in dropped for b in bound):
                    continue
                places = [n for n in inside if isinstance(n, ast.Name) and n.id == name]
                places = [n for n in places if self.names.home(name, n) is function]
                if any(isinstance(b, ast.FunctionDef) for b in bound):
                    raise NoFix(f"`{name}`, which the region defines, is also used around it")
                fresh = next(f"{name}{i}" for i in itertools.count(2) if f"{name}{i}" not in taken)
                taken.add(fresh)
                new |= dict.fromkeys(places, fresh)
        return new

    def _is_inner(self, scope: ast.AST | None) -> bool:
        return scope is not None and self.scope in self.names.ancestors(scope)

    def move_out(self) -> Splice:
        """The region's statements in its own place, each where its guards were."""
        statements = [self.opening, self.function]
        first, last = sorted(statements, key=lambda s: s.lineno)
        splice = Splice(self.source, first, last)
        for place, name in self._renamed().items():
            splice.on(place, functools.partial(_always, cst.Name(name)), cst.Name)
        moved: list[Any] = []
        for assignment in self._dropped_assignments():
            splice.on_line_of(assignment, lambda line: cst.RemoveFromParent())
        for guard in self.guards:
            if guard.rest:
                [decorator] = guard.function.decorator_list
                assert isinstance(decorator, ast.Call)
                rest = cst.parse_expression(self._joined(guard.rest))
                splice.on(decorator.args[0], functools.partial(_always, rest), cst.BaseExpression)
            else:
                splice.on(guard.function, _opened, cst.FunctionDef)
        if self.opening is self.function:
            splice.on(self.function, _opened, cst.FunctionDef)
            return splice

        def take(function: cst.FunctionDef) -> cst.RemovalSentinel:
            moved.extend(_opened(function))
            return cst.RemovalSentinel.REMOVE

        def put(line: cst.SimpleStatementLine) -> Any:
            comments = [e for e in line.leading_lines if e.comment]
            first = moved[0]
            around = [*first.leading_lines, *comments, *as_line(line.trailing_whitespace)]
            return cst.FlattenSentinel([first.with_changes(leading_lines=around), *moved[1:]])

        splice.on(self.function, take, cst.FunctionDef)
        splice.on_line_of(self.opening, put)
        return splice

    def repeated(self) -> Splice:
        """The region's statements in a Python loop over the warps, in place of the region."""
        splice = Splice(self.source, self.function)
        [warp] = self.ids
        for assignment in own_statements(self.function):
            if isinstance(assignment, ast.Assign) and self._binds(assignment, warp):
                splice.on_line_of(assignment, lambda line: cst.RemoveFromParent())

        def loop(function: cst.FunctionDef) -> cst.For:
            above = [*function.leading_lines, *_decorator_lines(function)]
            iterated = cst.parse_expression(f"range({len(WARPS)})")
            return cst.For(cst.Name(warp), iterated, function.body, leading_lines=above)

        splice.on(self.function, loop, cst.FunctionDef)
        return splice

    @staticmethod
    def _binds(assignment: ast.Assign, name: str) -> bool:
        return any(isinstance(t, ast.Name) and t.id == name for t in assignment.targets)

    def split(self) -> Splice:
        """The array operations between the parts of the region that come before and after them. Raises NoFix unless
        they stand side by side in the one block that the region has."""
        owner, at = self._only_block()
        moved = [self._is_moved(s) for s in owner.body]
        for i, statement in enumerate(owner.body):
            # What is stored has to be committed by whoever stores it.
            moved[i] = moved[i] or (i > 0 and moved[i - 1] and self._does_only(statement, "commit_smem"))
        runs = [
            (is_moved, [i for i, _ in run]) for is_moved, run in itertools.groupby(enumerate(moved), lambda m: m[1])
        ]
        self._check_split(owner, [[owner.body[i] for i in indices] for _, indices in runs], moved)

        def change(function: cst.FunctionDef) -> Any:
            block = function if at is None else function.body.body[at]
            assert isinstance(block, cst.FunctionDef)
            statements = block.body.body
            if not isinstance(block.body, cst.IndentedBlock) or len(statements) != len(moved):
                raise NoFix("the region has several statements on one line")
            out: list[Any] = []
            for is_moved, indices in runs:
                part = [statements[i] for i in indices]
                if is_moved:
                    out += part
                    continue
                kept: Any = block.with_changes(body=block.body.with_changes(body=part, footer=[]))
                if at is not None:
                    around = [*function.body.body[:at], kept, *function.body.body[at + 1 :]]
                    kept = function.with_changes(body=function.body.with_changes(body=around))
                out.append(kept if not out else kept.with_changes(leading_lines=[]))
            return cst.FlattenSentinel(_with_lines(out, function.leading_lines))

        splice = Splice(self.source, self.function)
        splice.on(self.function, change, cst.FunctionDef)
        return splice

    def _only_block(self) -> tuple[ast.FunctionDef, int | None]:
        """The function whose statements the region runs, and its place among those of the region's own function."""
        if self.opening is not self.function:
            raise NoFix("the region's function is not decorated in place")
        if not any(isinstance(s, ast.FunctionDef) for s in self.function.body):
            return self.function, None
        rest = [s for s in self.function.body if not (isinstance(s, ast.Assign) and s in self._dropped_assignments())]
        if len(rest) != 1 or len(self.guards) != 1 or self.guards[0].function is not rest[0] or self.guards[0].rest:
            raise NoFix("the region has more than one block")
        return self.guards[0].function, self.function.body.index(rest[0])

    def _inside(self, statement: ast.stmt) -> list[Operation]:
        start, end = self.source.bounds(statement)
        return [o for o, (a, b) in self.operations if start <= a and b <= end]

    def _is_moved(self, statement: ast.stmt) -> bool:
        """Whether a statement deals with arrays, and does nothing else."""
        inside = self._inside(statement)
        return any(o.shape for o in inside) and all(o.name in COMPUTES | LOADS | STORES for o in inside)

    def _does_only(self, statement: ast.stmt, name: str) -> bool:
        inside = self._inside(statement)
        return bool(inside) and all(o.name == name for o in inside)

    def _check_split(self, owner: ast.FunctionDef, runs: Sequence[Sequence[ast.stmt]], moved: Sequence[bool]) -> None:
        for statement, is_moved in zip(owner.body, moved, strict=True):
            line = statement.lineno
            if not is_moved and any(o.shape for o in self._inside(statement)):
                raise NoFix(f"line {line} does more than to compute, load and store")
            if is_moved and any(o.warp for o in self._inside(statement)):
                raise NoFix(f"line {line} depends on which warp runs it")
            if is_moved and len(self.warps_at(statement)) > 1 and not self.keeps_order:
                raise NoFix("several warps run the region, and it reads what it stores")
        if not any(moved) or all(moved):
            raise NoFix("there is nothing to split the region at")
        for run in runs:
            inside = {n for s in run for n in ast.walk(s)}
            for name in [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]:
                home = self.names.home(name.id, name)
                if any(use not in inside for use in (self.names.uses(name.id, home) if home else ())):
                    raise NoFix(f"`{name.id}` is needed in several parts of the region")
        self._check_statements_of([owner])
        self._check_names()

    def _moved(self) -> list[ast.FunctionDef]:
        """The functions whose statements are moved out of them."""
        return [self.function, *(g.function for g in self.guards if not g.rest)]

    def _joined(self, parts: Sequence[ast.expr]) -> str:
        texts = [self.source.segment(p) for p in parts]
        return texts[0] if len(texts) == 1 else " & ".join(f"({t})" for t in texts)


def inlines_arrays(region: Region) -> bool:
    """Whether every ``inline_mgpu`` function that a region calls returns an array, which no single warp can hold."""
    return all(o.shape for o in region.operations if o.name == INLINE)


def own_statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    """Every statement of a function but those of functions in it, which are given as a whole."""
    todo: list[ast.stmt] = list(function.body)
    for statement in todo:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            todo += [n for n in ast.iter_child_nodes(statement) if isinstance(n, ast.stmt)]


def constant(names: Names, node: ast.expr) -> object:
    """Value of a literal, or of a name for one; None where it is not known."""
    if isinstance(node, ast.Name):
        bound = names.binding(node.id, node)
        return bound.value if isinstance(bound, ast.Constant) else None
    return node.value if isinstance(node, ast.Constant) else None


def _offsets(source: SourceFile, span: Span) -> tuple[int, int]:
    if span.end_line > len(source.starts):
        raise NoFix("the file is not what was traced")
    start = source.starts[span.line - 1] + span.column - 1
    return start, source.starts[span.end_line - 1] + span.end_column - 1


def _conjuncts(names: Names, condition: ast.expr) -> Iterator[ast.expr]:
    match condition:
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            parts = [left, right]
        case ast.BoolOp(op=ast.And(), values=values):
            parts = values
        case ast.Call(func=func, args=[left, right]) if names.resolve(func) == "jax.numpy.logical_and":
            parts = [left, right]
        case _:
            yield condition
            return
    for part in parts:
        yield from _conjuncts(names, part)


_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def _opened(function: cst.FunctionDef) -> Any:
    """The statements of a function, with the comments on its own lines before and after them."""
    above = [*function.leading_lines, *_decorator_lines(function)]
    below: list[cst.EmptyLine] = []
    if isinstance(function.body, cst.IndentedBlock):
        above += as_line(function.body.header)
        statements: list[Any] = list(function.body.body)
        below = [line for line in function.body.footer if line.comment]
    else:
        assert isinstance(function.body, cst.SimpleStatementSuite)
        above += as_line(function.body.trailing_whitespace)
        statements = [
            cst.SimpleStatementLine([s.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for s in function.body.body
        ]
    statements = _with_lines(statements, above)
    if below and statements:
        last: Any = statements[-1]
        statements[-1] = last.with_changes(leading_lines=[*last.leading_lines, *below])
    return cst.FlattenSentinel(statements)


def _decorator_lines(function: cst.FunctionDef) -> Iterator[cst.EmptyLine]:
    """The comments on and after a function's decorators."""
    for decorator in function.decorators:
        yield from decorator.leading_lines
        yield from as_line(decorator.trailing_whitespace)
    yield from function.lines_after_decorators


def _always(made: cst.CSTNode, old: cst.CSTNode) -> cst.CSTNode:
    return made


def _with_lines(statements: Sequence[Any], above: Sequence[cst.EmptyLine]) -> list[Any]:
    """Statements with more lines before the first; blank lines that the first had itself give way."""
    if not statements:
        return []
    first, *rest = statements
    own = list(first.leading_lines)
    while own and own[0].comment is None:
        own.pop(0)
    return [first.with_changes(leading_lines=[*above, *own]), *rest]


def as_line(space: cst.TrailingWhitespace) -> list[cst.EmptyLine]:
    """The comment behind a statement on a line of its own."""
    return [cst.EmptyLine(comment=space.comment)] if space.comment else []
