"""Warp-level regions in the source: the function that one is, and which warps run what in it."""

import ast
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Operation, Region, Span
from mgpu_fix.source import Names, SourceFile

from ..callees import reached
from .primitives import LOADS, STORES

#: warps in a warpgroup
WARPS = frozenset(range(4))

#: the operation that calls a function of ``plgpu.inline_mgpu``
INLINE = "inline_mgpu"

PALLAS = "jax.experimental.pallas"


@dataclass(frozen=True)
class Guard:
    """A ``pl.when`` whose condition depends on the warp: ``rest`` is the text of the part that does not, if any."""

    function: ast.FunctionDef
    warps: frozenset[int]
    rest: str


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
        for node in own_statements(self.function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if self._is_asking(value) or (isinstance(value, ast.Name) and value.id in ids):
                        ids.add(name)
        return ids

    def _is_asking(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.source.bounds(node) in self._asking

    # ------------------------------------------------------------------ guards

    @functools.cached_property
    def guards(self) -> list[Guard]:
        """The region's guards, outer ones first. Raises NoFix where one is not understood."""
        for name in self.ids:
            home = self.names.home(name, self.function.body[0])
            if home is self.function and len(self.names.members(home)[name]) > 1:
                raise NoFix(f"`{name}` is bound again in the region")
        return list(self._descend(self.function, WARPS))

    def _descend(self, function: ast.FunctionDef, warps: frozenset[int]) -> Iterator[Guard]:
        for statement in own_statements(function):
            if not isinstance(statement, ast.FunctionDef):
                continue
            match statement.decorator_list:
                case [ast.Call(func=func, args=[condition], keywords=[])] if self._is("when", func):
                    found = self._condition(condition)
                    inner = warps & found[0] if found else warps
                    if found:
                        yield Guard(statement, inner, found[1])
                    yield from self._descend(statement, inner)
                case [ast.Call(func=func)] if self._is("loop", func):
                    yield from self._descend(statement, warps)

    def _is(self, name: str, node: ast.expr) -> bool:
        return self.names.resolve(node) == f"{PALLAS}.{name}"

    def _condition(self, condition: ast.expr) -> tuple[frozenset[int], str] | None:
        """The warps that a condition lets through, and the rest of it, which does not ask for the warp, as text; None
        where nothing in it does."""
        if not self.asks(condition):
            return None
        warps, rest = WARPS, []
        parts, joiner = _conjuncts(self.names, condition)
        for part in parts:
            if not self.asks(part):
                rest.append(self.source.segment(part))
                continue
            found = self._let_through(part)
            if found is None:
                raise NoFix(f"`{self.source.segment(part)}` is no comparison of the warp's number with a constant")
            warps &= found
        if len(rest) > 1 and not joiner:
            raise NoFix(f"`{self.source.segment(condition)}` joins its parts in several ways")
        return warps, rest[0] if len(rest) == 1 else joiner.join(f"({text})" for text in rest)

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
        # A binding that is a name of its own, not the value of one, is stored to.
        is_value = isinstance(bound, ast.expr) and isinstance(getattr(bound, "ctx", ast.Load()), ast.Load)
        return cast(ast.expr, bound) if inside and is_value else None

    def _let_through(self, part: ast.expr) -> frozenset[int] | None:
        """The warps for which ``part``, which asks for nothing else, holds; None where that is not known."""
        if isinstance(part, ast.Name):
            value = self._derived(part)
            return self._let_through(value) if value is not None else None
        match part:
            case ast.BinOp(left=a, op=ast.BitAnd() | ast.BitOr() as op, right=b):
                return _combined(self._let_through(a), self._let_through(b), isinstance(op, ast.BitAnd))
            case ast.BoolOp(op=op, values=[a, b]):
                return _combined(self._let_through(a), self._let_through(b), isinstance(op, ast.And))
            case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
                found = self._let_through(operand)
                return None if found is None else WARPS - found
            case ast.Call(func=func, args=args, keywords=[]):
                name = (self.names.resolve(func) or "").removeprefix("jax.numpy.")
                let = [self._let_through(a) for a in args]
                if name in ("logical_and", "logical_or") and len(let) == 2:
                    return _combined(let[0], let[1], name == "logical_and")
                return WARPS - let[0] if name == "logical_not" and len(let) == 1 and let[0] is not None else None
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
        guards = {g.function: g.warps for g in self.guards}
        return next((guards[n] for n in self.names.ancestors(node) if n in guards), WARPS)

    @property
    def keeps_order(self) -> bool:
        """Whether the region reads nothing that it stores, so that its stores may come in any order."""
        stored = {o.ref for o in self.facts.operations if o.name in STORES}
        return stored.isdisjoint(o.ref for o in self.facts.operations if o.name in LOADS)

    def crossing(self) -> str:
        """Why it matters in which order the warps run the region, which nothing tells; empty where it does not.

        Raises NoFix where it is not known which warps run what.
        """
        users: dict[int | None, set[frozenset[int]]] = {}
        several = False
        for operation, span in self.operations:
            warps = self.warps_at(self._nodes.get(span, self.function))
            if operation.name in STORES:
                line = self.source.position(span[0])[0]
                if not self._runs_in_place(self._nodes[span]):
                    raise NoFix(f"who runs line {line} is not known")
                if operation.warp and not operation.place and len(warps) > 1:
                    return f"several warps store different values at line {line}"
            if operation.name in LOADS | STORES:
                users.setdefault(operation.ref, set()).add(warps)
            several = several or (operation.name == INLINE and len(warps) > 1)
        stored = {o.ref for o, _ in self.operations if o.name in STORES}
        if any(len(users[ref]) > 1 for ref in stored):
            return "different warps use what the region stores, in no order"
        if several or (not self.keeps_order and any(len(w) > 1 for ref in stored for w in users[ref])):
            return "several warps run the region, and it reads what it stores"
        return ""

    def _runs_in_place(self, node: ast.AST) -> bool:
        """Whether only decorated functions stand between a node and the region, so that each runs where it stands."""
        functions = [n for n in self.names.ancestors(node) if isinstance(n, ast.FunctionDef)]
        return all(f.decorator_list for f in functions[: functions.index(self.function)])


def inlines_arrays(region: Region) -> bool:
    """Whether every ``inline_mgpu`` function that a region calls returns an array, which no single warp can hold."""
    return all(o.shape for o in region.operations if o.name == INLINE)


#: part of the name of a function that does something in memory or to other threads
_ACTS = re.compile(r"store|atomic|barrier|async|copy|fence|arrive|wait|asm|print|commit|launch|prefetch")


def may_act(region: WarpRegion) -> bool:
    """Whether an ``inline_mgpu`` function that a region calls may do more than make an array, which one warp did and
    four would do."""
    names, inside = region.names, reached(region.names, [region.function])
    if not any(o.name == INLINE for o in region.facts.operations):
        return False
    functions = [n for n in inside if isinstance(n, ast.FunctionDef) and n is not region.function]
    inlined = [f for f in functions if any(INLINE in ast.unparse(maker) for maker in f.decorator_list)]
    calls = [n.func for n in reached(names, inlined or functions) if isinstance(n, ast.Call)]
    called = [f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in calls]
    return not functions or any(map(_ACTS.search, called))


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


def _conjuncts(names: Names, condition: ast.expr) -> tuple[list[ast.expr], str]:
    """The parts that all have to hold, and what joins them; nothing where they are joined in several ways."""
    match condition:
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            parts, joiner = [left, right], " & "
        case ast.BoolOp(op=ast.And(), values=values):
            parts, joiner = values, " and "
        case ast.Call(func=func, args=[left, right]) if names.resolve(func) == "jax.numpy.logical_and":
            parts, joiner = [left, right], ""
        case _:
            return [condition], ""
    found: list[ast.expr] = []
    for part in parts:
        inner, how = _conjuncts(names, part)
        found += inner
        joiner = joiner if len(inner) == 1 or how == joiner else ""
    return found, joiner


def _combined(a: frozenset[int] | None, b: frozenset[int] | None, both: bool) -> frozenset[int] | None:
    if a is None or b is None:
        return None
    return a & b if both else a | b


_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
