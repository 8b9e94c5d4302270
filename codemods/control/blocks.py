"""What the statements of a branch or a loop's body need of what is around them, if they become a function."""

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from mgpu_fix.catalogue import NoFix
from mgpu_fix.source import Names
from mgpu_fix.source.flow import block

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LEAVES: dict[type[ast.AST], str] = {
    ast.Return: "return", ast.Yield: "yield", ast.YieldFrom: "yield", ast.Await: "await", ast.Global: "global",
    ast.Nonlocal: "nonlocal", ast.Delete: "del", ast.Raise: "raise", ast.Assert: "assert",
}  # fmt: skip
_JUMPS: dict[type[ast.AST], str] = {ast.Break: "break", ast.Continue: "continue"}


def own(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Every node of some statements that belongs to no function or class defined in them."""
    todo: list[ast.AST] = list(statements)
    for node in todo:
        yield node
        if not isinstance(node, _NESTED):
            todo += ast.iter_child_nodes(node)


def check_closed(statements: Sequence[ast.stmt]) -> None:
    """Raises NoFix where the statements do what only the function around them can."""
    for node in own(statements):
        word = _LEAVES.get(type(node))
        if word:
            raise NoFix(f"by hand: a `{word}` depends on it, which cannot go into a function of its own")
    jumps = list(_jumps(statements))
    if jumps:
        raise NoFix(f"by hand: a `{_JUMPS[type(jumps[0])]}` depends on it, which JAX's loops do not have")


def _jumps(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Jumps out of the statements' own loop, or to its next step."""
    for node in statements:
        if type(node) in _JUMPS:
            yield node
        inner = [] if isinstance(node, (*_NESTED, ast.For, ast.While)) else [*ast.iter_child_nodes(node)]
        yield from _jumps([n for n in inner if isinstance(n, ast.stmt | ast.ExceptHandler)])  # type: ignore[misc]


def bound_in(statements: Sequence[ast.stmt]) -> dict[str, ast.AST]:
    """Names that the statements themselves bind, with one of the nodes that do."""
    found: dict[str, ast.AST] = {}
    for node in own(statements):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found[name] = node
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found[name] = node
            case ast.Import() | ast.ImportFrom():
                found |= {(alias.asname or alias.name).partition(".")[0]: node for alias in node.names}
    return found


class Needs:
    """Which of the names that some statements bind are needed around them. ``around`` is the compound statement that
    they belong to."""

    def __init__(self, names: Names, around: ast.stmt, statements: Sequence[ast.stmt]) -> None:
        self.names, self.around, self.statements = names, around, statements
        self.function = names.scope(around)
        self._inside = {id(node) for statement in statements for node in ast.walk(statement)}

    def brought_in(self) -> list[str]:
        """Names that the statements bind and read, or may read, before that."""
        updated = {n.target.id: n.target for n in own(self.statements) if _updates(n)}
        found = []
        for name in bound_in(self.statements):
            reads = [use for use in self.names.uses(name, self.function) if id(use) in self._inside]
            reads += [updated[name]] if name in updated else []
            if not all(any(id(s) in self._inside for s in self._binders(read)) for read in reads):
                found.append(name)
        return found

    def taken_out(self) -> list[str]:
        """Names that are read elsewhere, or may be, as the statements left them."""
        uses = {name: self.names.uses(name, self.function) for name in bound_in(self.statements)}
        outer = self.declared()
        return [name for name, reads in uses.items() if name in outer or any(map(self._may_see, reads))]

    def seen_by_functions(self, name: str) -> bool:
        """Whether a function, or a generator, outside of the statements reads a name whenever it is run."""
        reads = [read for read in self.names.uses(name, self.function) if id(read) not in self._inside]
        return name in self.declared() or any(map(self._is_late, reads))

    def declared(self) -> set[str]:
        """Names of the function that are not its own."""
        inside = ast.walk(self.function)
        return {name for node in inside if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}

    def _is_late(self, read: ast.Name) -> bool:
        around = self.names.ancestors(read)
        generator = any(isinstance(a, ast.GeneratorExp) for a in around)
        return generator or self.names.scope(read) is not self.function

    def _may_see(self, read: ast.Name) -> bool:
        if id(read) in self._inside:
            return False
        if self._is_late(read):
            return True
        first = self.statements[0]
        before = (read.lineno, read.col_offset) < (first.lineno, first.col_offset)
        loops = (a for a in self.names.ancestors(self.around) if isinstance(a, ast.For | ast.While))
        if before and not any(self.names.scope(loop) is self.function for loop in loops):
            return False
        return not any(s.lineno > self.around.lineno and id(s) not in self._inside for s in self._binders(read))

    def _binders(self, read: ast.Name) -> Iterator[ast.stmt]:
        """Statements before ``read``, in the blocks around it, that surely bind the name."""
        at: ast.AST = read
        while at is not self.function and not isinstance(at, ast.Module):
            if isinstance(at, ast.stmt):
                siblings = block(self.names, at)
                yield from (earlier for earlier in siblings[: siblings.index(at)] if _binds(earlier, read.id))
            around = self.names.parents[at]
            if isinstance(around, ast.For) and at in around.body:
                yield from (
                    [around] if read.id in {n.id for n in ast.walk(around.target) if isinstance(n, ast.Name)} else []
                )
            at = around


def _updates(node: ast.AST) -> TypeGuard["_Update"]:
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)


class _Update(ast.AugAssign):
    target: ast.Name


def _binds(statement: ast.stmt, name: str) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            return any(isinstance(n, ast.Name) and n.id == name for t in targets for n in _targets(t))
        case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr()) | ast.FunctionDef(name=found):
            return found == name
    return False


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _targets(element)
    else:
        yield target


def colon(names: Names, after: ast.expr) -> int:
    """The offset behind the colon that ends a compound statement's first line. Raises NoFix."""
    source = names.source
    place = source.bounds(after)[1]
    text = source.text
    while place < len(text) and text[place] != ":":
        if text[place] not in " \t)\\\r\n":
            raise NoFix("by hand: a comment stands in the middle of the line")
        place += 1
    return place + 1


def nameless(names: Names, around: ast.stmt) -> str:
    """A name for a function that nobody calls."""
    return "_branch" if names.uses("_", names.scope(around)) else "_"
