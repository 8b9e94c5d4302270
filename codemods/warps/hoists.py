"""Moving what a warp-level region does out of it, so that the whole warpgroup does it."""

import ast
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Operation
from mgpu_fix.source import Splice
from mgpu_fix.source.flow import block

from .primitives import COMPUTES, LOADS, STORES
from .regions import WARPS, WarpRegion, own_statements

#: what it costs
WHOLE_WARPGROUP = "every warp of the warpgroup takes part, also those that had passed it by"


class MovableRegion(WarpRegion):
    """A region and the ways out of it. Each is to be checked before it is taken."""

    def check_movable(self, semantics: str, allowed: frozenset[str] = frozenset()) -> None:
        """Raises NoFix unless the whole warpgroup can do once what the region does, in its place.

        ``semantics`` are the kernel's; ``allowed`` names operations that are taken for ones which only compute.
        """
        self._check_operations(COMPUTES | LOADS | STORES | allowed)
        self._check_warps()
        self._check_numbers(semantics, self.operations)
        self._check_statements()
        self._renamed()

    def check_repeatable(self, semantics: str) -> None:
        """Raises NoFix unless the whole warpgroup can do, for one warp after the other, what the region does."""
        self._check_operations(COMPUTES | LOADS | STORES)
        self._check_numbers(semantics, self.operations)
        if not self.keeps_order:
            raise NoFix("the region reads what it stores, and its warps run in no order")
        if self.guards or not all(o.place for o in self.facts.operations if o.name in STORES):
            raise NoFix("not every warp stores to a place of its own")
        if self.opening is not self.function or len(self.ids) != 1:
            raise NoFix("the region is not of the form that can be repeated for each warp")
        [warp] = self.ids
        if any(n.id == warp and not self._is_inner(self.names.home(warp, n)) for n in self._around()):
            raise NoFix(f"`{warp}` also means something else in the kernel")
        self._check_statements_of([self.function])
        self._check_names()

    def _check_operations(self, known: frozenset[str]) -> None:
        for operation in self.facts.operations:
            if operation.name not in known:
                line = self.source.position(self._own_or_all(operation)[0])[0]
                raise NoFix(f"the region also does `{operation.name}` at line {line}, whose order and warp must stay")

    def _check_numbers(self, semantics: str, operations: Sequence[tuple[Operation, tuple[int, int]]]) -> None:
        """Raises NoFix where threads that nothing holds together would load and store the same numbers: with Warpgroup
        semantics only arrays come with barriers."""
        if semantics != "Warpgroup":
            return
        stored = {o.ref for o, _ in operations if o.name in STORES and not o.shape}
        loaded = {o.ref for o in self.facts.operations if o.name in LOADS}
        for operation, span in operations:
            if not operation.shape and (operation.elsewhere or operation.ref in stored & loaded):
                line = self.source.position(span[0])[0]
                raise NoFix(f"the number that is loaded or stored at line {line} is one warp's alone")

    def _own_or_all(self, operation: Operation) -> tuple[int, int]:
        return next((span for o, span in self.operations if o is operation), self._at)

    def _check_warps(self) -> None:
        for operation, span in self.operations:
            if operation.name not in STORES:
                continue
            line = self.source.position(span[0])[0]
            if operation.warp:
                raise NoFix(f"each warp stores another value or place at line {line}")
            if not self.warps_at(self._nodes[span]):
                raise NoFix(f"no warp gets to line {line}")
        if crossing := self.crossing():
            raise NoFix(crossing)
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
        for function in functions:
            own = self.function.args.args[:1] if function is self.function else []
            if [n for n in ast.walk(function.args) if isinstance(n, ast.arg)] != own or function.args.defaults:
                raise NoFix(f"`{function.name}` at line {function.lineno} has parameters of its own")
        for node in itertools.chain.from_iterable(map(own_statements, functions)):
            if isinstance(node, ast.Return | ast.Nonlocal | ast.Global):
                raise NoFix(f"the region has a `{type(node).__name__.lower()}` at line {node.lineno}")

    def _dropped_assignments(self) -> list[ast.Assign]:
        """Assignments of what depends on the warp, which only the guards need."""
        found = []
        for statement in own_statements(self.function):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in self.ids or self.asks(value):
                    if any(s is not statement and s.lineno == statement.lineno for s in block(self.names, statement)):
                        raise NoFix(f"line {statement.lineno} has several statements")
                    found.append(statement)
        return found

    def _around(self) -> list[ast.Name]:
        """Names in the kernel around the region."""
        inside = set(ast.walk(self.function))
        return [n for n in ast.walk(self.scope) if isinstance(n, ast.Name) and n not in inside]

    def _check_names(self) -> None:
        """Raises NoFix where a name that the region binds means something else around it."""
        if clash := next(iter(self._renamed()), None):
            raise NoFix(f"`{clash.id}`, which the region binds, is also used around it")

    def _renamed(self) -> dict[ast.Name, str]:
        """New names, by the places of the old ones, for what the region binds and means something else around it.

        Raises NoFix where that is a function.
        """
        moved = self._moved()
        nodes = [n for n in ast.walk(self.scope) if isinstance(n, ast.Name)]
        taken = {n.id for n in nodes} | set(self.names.members(self.scope))
        dropped = {n for s in self._dropped_assignments() for n in ast.walk(s)}
        new: dict[ast.Name, str] = {}
        for function in moved:
            for name, bound in self.names.members(function).items():
                places = [n for n in nodes if n.id == name and self.names.home(name, n) is function]
                homes = [self.names.home(name, n) for n in nodes if n.id == name]
                # What another function in the kernel binds for itself stays its own.
                others = [h for h in homes if h is not function and (h in moved or not self._is_inner(h))]
                own = all(b in dropped for b in bound) or any(isinstance(b, ast.arg) for b in bound)
                if own or not (others or name in self.names.members(self.scope)):
                    continue
                if any(isinstance(b, ast.FunctionDef) for b in bound):
                    if name != "_":
                        raise NoFix(f"`{name}`, which the region defines, is also used around it")
                    continue
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
        splice = Splice(self.source, first, last, comments=True)
        for place, name in self._renamed().items():
            splice.on(place, functools.partial(_always, cst.Name(name)), cst.Name)
        moved: list[Any] = []
        for assignment in self._dropped_assignments():
            splice.on_line_of(assignment, lambda line: cst.RemoveFromParent())
        for guard in self.guards:
            if guard.rest:
                [decorator] = guard.function.decorator_list
                assert isinstance(decorator, ast.Call)
                rest = cst.parse_expression(guard.rest)
                splice.on(decorator.args[0], functools.partial(_always, rest), cst.BaseExpression)
            else:
                splice.on(guard.function, opened, cst.FunctionDef)
        if self.opening is self.function:
            splice.on(self.function, opened, cst.FunctionDef)
            return splice

        def take(function: cst.FunctionDef) -> cst.RemovalSentinel:
            moved.extend(opened(function))
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

    def split(self, semantics: str) -> Splice:
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
        ends = [self.source.bounds(s) for s, is_moved in zip(owner.body, moved, strict=True) if is_moved]
        inside = [(o, at_) for o, at_ in self.operations if any(a <= at_[0] and at_[1] <= b for a, b in ends)]
        self._check_numbers(semantics, inside)

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
        if crossing := self.crossing():
            raise NoFix(crossing)
        if not any(moved) or all(moved):
            raise NoFix("there is nothing to split the region at")
        for run in runs:
            inside = {n for s in run for n in ast.walk(s)}
            for name in [n for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]:
                home = self.names.home(name.id, name)
                if any(use not in inside for use in (self.names.uses(name.id, home) if home else ())):
                    raise NoFix(f"`{name.id}` is needed in several parts of the region")
        self._check_statements_of([*dict.fromkeys((self.function, owner))])
        self._check_names()

    def _moved(self) -> list[ast.FunctionDef]:
        """The functions whose statements are moved out of them."""
        return [self.function, *(g.function for g in self.guards if not g.rest)]


def opened(function: cst.FunctionDef) -> Any:
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
