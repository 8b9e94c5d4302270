"""`if` on a value of JAX's: branches that store run under `pl.when`, a value that they name is chosen."""

import ast
import re
from collections.abc import Callable, Iterator

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Candidate, Edit
from mgpu_fix.source import Names
from mgpu_fix.source.flow import is_pure

from ..imports import Imports
from .blocks import Needs, check_closed, colon, nameless
from .conditions import Conditions
from .effects import check_effects, check_watched


def branches(names: Names, statement: ast.If) -> Iterator[Candidate]:
    """What becomes of a whole ``if``, with its ``elif`` and ``else``, best first. Raises NoFix."""
    parts = list(_parts(statement))
    if _leaves(names, statement):
        check_watched(names, names.scope(statement))
        yield _early(names, statement)
        return
    check_watched(names, names.scope(statement))
    for _, body in parts:
        check_closed(body)
        check_effects(names, body)
    shared = [n for _, body in parts for need in [Needs(names, statement, body)] for n in _shared(need)]
    if shared:
        yield from _chosen(names, parts, shared)
    else:
        yield _guarded(names, statement, parts)


def choice(names: Names, node: ast.IfExp) -> Iterator[Candidate]:
    """What becomes of ``a if c else b``. Raises NoFix."""
    check_effects(names, [node.body, node.orelse])
    start, end = names.source.bounds(node)
    yield from _choices(names, node.test, [("", node.body, node.orelse)], lambda made: (start, end, made[0]))


def _shared(need: Needs) -> list[str]:
    return list(dict.fromkeys((*need.brought_in(), *need.taken_out())))


def _parts(statement: ast.If) -> Iterator[tuple[ast.expr | None, list[ast.stmt]]]:
    """Tests and what they guard, None for ``else``."""
    at: ast.If | None = statement
    while at is not None:
        yield at.test, at.body
        rest = at.orelse
        at = rest[0] if len(rest) == 1 and isinstance(rest[0], ast.If) and rest[0].col_offset == at.col_offset else None
        if at is None and rest:
            yield None, rest


# ---------------------------------------------------------------------- branches that store


def _guarded(names: Names, statement: ast.If, parts: list[tuple[ast.expr | None, list[ast.stmt]]]) -> Candidate:
    """Each branch under its own ``pl.when``, with its lines as they are."""
    source, imports = names.source, Imports(names)
    conditions = Conditions(names, imports)
    pl, name = imports.name("jax.experimental.pallas"), nameless(names, statement)
    indent = source.indentation(statement.lineno)
    tests = [test for test, _ in parts if test is not None]
    if len(parts) > 1 and not all(map(conditions.is_plain, tests)):
        raise NoFix("by hand: give the condition a name before the `if`, since the first branch may change it")
    before: list[str] = []
    edits: list[Edit] = []
    for i, (test, body) in enumerate(parts):
        own = [conditions.text(test)] if test is not None else []
        text = conditions.joined(*before, *own)
        if test is not None:
            before.append(conditions.opposite(test))
            start = source.bounds(test)[0]
            end = colon(names, test)
            start = source.text.rindex("elif" if i else "if", 0, start)
        else:
            start, end = _else(names, parts[i - 1][1][-1], body[0])
        edits.append(Edit(start, end, f"@{pl}.when({text}){source.newline}{indent}def {name}():"))
    return Candidate("Run what depends on it under pl.when", (*edits, *imports.edits))


def _leaves(names: Names, statement: ast.If) -> bool:
    """Whether a function is left early, and does nothing else but what comes after."""
    last = statement.body[-1]
    parent = names.parents[statement]
    bare = isinstance(last, ast.Return) and (
        last.value is None or (isinstance(last.value, ast.Constant) and not last.value.value)
    )
    return bare and not statement.orelse and isinstance(parent, ast.FunctionDef) and parent.body[-1] is not statement


def _early(names: Names, statement: ast.If) -> Candidate:
    """What a function does unless it is left early, under ``pl.when``."""
    source, imports = names.source, Imports(names)
    function = names.parents[statement]
    assert isinstance(function, ast.FunctionDef)
    rest = function.body[function.body.index(statement) + 1 :]
    first, done = statement.body[-1], statement.body[:-1]
    for body in filter(None, (done, rest)):
        check_closed(body)
        check_effects(names, body)
        need = Needs(names, statement, body)
        if taken := need.taken_out():
            raise NoFix(f"by hand: nest what follows under pl.when, for which `{taken[0]}` is read elsewhere")
        if brought := need.brought_in():
            raise NoFix(f"by hand: nest what follows under pl.when, and give `{brought[0]}` there another name")
    conditions = Conditions(names, imports)
    if done and not conditions.is_plain(statement.test):
        raise NoFix("by hand: give the condition a name before the `if`, since its branch may change it")
    texts = [n for s in rest for n in ast.walk(s) if isinstance(n, ast.Constant | ast.JoinedStr)]
    if any(n.lineno != n.end_lineno for n in texts) or statement.body[0].lineno == statement.lineno != first.lineno:
        raise NoFix("by hand: nest what follows under pl.when")
    pl, name = imports.name("jax.experimental.pallas"), nameless(names, statement)
    indent, newline = source.indentation(statement.lineno), source.newline
    opened = f"@{pl}.when({conditions.opposite(statement.test)}){newline}{indent}def {name}():"
    if done:
        # What is done before it is left stays where it is.
        head = f"@{pl}.when({conditions.text(statement.test)}){newline}{indent}def {name}():"
        begin = source.text.rindex("if", 0, source.bounds(statement.test)[0])
        edits = [Edit(begin, colon(names, statement.test), head)]
        edits.append(Edit(source.bounds(done[-1])[1], source.bounds(first)[1], f"{newline}{newline}{indent}{opened}"))
    else:
        edits = [Edit(source.bounds(statement)[0], colon(names, statement.test), opened), _dropped(names, first)]
    place = source.bounds(statement)[1]
    for line in range(source.position(place)[0] + 1, (rest[-1].end_lineno or 0) + 1):
        if source.line(line).strip():
            at = source.starts[line - 1]
            edits.append(Edit(at, at, source.indent))
    return Candidate("Run the rest under pl.when", (*edits, *imports.edits))


def _dropped(names: Names, last: ast.stmt) -> Edit:
    """Takes a ``return`` out, with its line if nothing else stands there."""
    source = names.source
    start, end = source.bounds(last)
    line, after = source.starts[last.lineno - 1], source.text.find("\n", end)
    if source.text[line:start].strip() or source.text[end:after].strip():
        rest = source.text[end:after]
        if source.text[line:start].strip():
            return Edit(start - 1 if source.text[start - 1] == " " else start, end, "")
        # A comment stays, where the statement stood.
        return Edit(start, end + len(rest) - len(rest.lstrip()), "")
    return Edit(line, after + 1, "")


def _else(names: Names, before: ast.stmt, after: ast.stmt) -> tuple[int, int]:
    """Where ``else:`` stands between two statements."""
    source = names.source
    start, end = source.bounds(before)[1], source.bounds(after)[0]
    found = list(re.finditer(r"(?m)^[ \t]*(else[ \t]*:)", source.text[start:end]))
    if len(found) != 1:
        raise NoFix("by hand: the `else` was not found")
    return start + found[0].start(1), start + found[0].end(1)


# ---------------------------------------------------------------------- branches that name values


def _chosen(
    names: Names, parts: list[tuple[ast.expr | None, list[ast.stmt]]], shared: list[str]
) -> Iterator[Candidate]:
    """A choice for each value that one or two branches name."""
    source = names.source
    why = f"by hand: give `{shared[0]}` its value with jnp.where or lax.cond, and store under pl.when"
    [(test, first), *rest] = parts
    outer = Needs(names, names.statement(first[0]), first).declared()
    if outer.intersection(shared):
        raise NoFix(f"by hand: `{shared[0]}` outlives the kernel, in which its value is only a placeholder")
    if test is None or len(rest) > 1 or (rest and rest[0][0] is not None):
        raise NoFix(why)
    other = rest[0][1] if rest else []
    mine, theirs = _values(names, first, why), _values(names, other, why)
    named = list(dict.fromkeys((*mine, *theirs)))
    if not Conditions(names, Imports(names)).is_plain(test) and len(named) > 1:
        raise NoFix("by hand: give the condition a name before the `if`")
    decides = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    for i, name in enumerate(named):
        if name in decides and i + 1 < len(named):
            raise NoFix(f"by hand: give the condition a name before the `if`, which changes `{name}`")
        values = [v for v in (mine.get(name), theirs.get(name)) if v]
        if {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name)} & {*named[:i]}:
            raise NoFix(why)
    start = source.text.rindex("if", 0, source.bounds(test)[0])
    end = source.bounds((other or first)[-1])[1]
    if "#" in source.text[start:end]:
        raise NoFix(why)
    indent = source.newline + source.indentation(test.lineno)
    pairs = [(name, mine.get(name) or name, theirs.get(name) or name) for name in named]
    yield from _choices(names, test, pairs, lambda made: (start, end, indent.join(made)))


def _choices(
    names: Names,
    test: ast.expr,
    pairs: list[tuple[str, ast.expr | str, ast.expr | str]],
    place: Callable[[list[str]], tuple[int, int, str]],
) -> Iterator[Candidate]:
    """``jnp.where``, which Mosaic GPU mostly has for numbers only, and ``lax.cond``, which computes one side."""
    sides = [side for _, *both in pairs for side in both if isinstance(side, ast.expr)]
    imports = Imports(names)
    condition = Conditions(names, imports).text(test)
    divides = any(isinstance(n, ast.FloorDiv | ast.Mod) for side in sides for n in ast.walk(side))
    # What divides whole numbers may be guarded against a zero.
    if not divides and all(is_pure(names, side) for side in sides):
        loads = any(isinstance(n, ast.Subscript) for side in sides for n in ast.walk(side))
        where = f"{imports.name('jax.numpy')}.where"
        made = [_named(name, f"{where}({condition}, {_text(names, a)}, {_text(names, b)})") for name, a, b in pairs]
        edits = (Edit(*place(made)), *imports.edits)
        yield Candidate("Choose with jnp.where", edits, name="where", needs_oracle=loads)
    imports = Imports(names)
    cond = f"{imports.name('jax.lax')}.cond({Conditions(names, imports).text(test)}"
    made = [_named(name, f"{cond}, lambda: {_text(names, a)}, lambda: {_text(names, b)})") for name, a, b in pairs]
    yield Candidate("Choose with lax.cond", (Edit(*place(made)), *imports.edits), name="cond")


def _named(name: str, value: str) -> str:
    return f"{name} = {value}" if name else value


def _values(names: Names, body: list[ast.stmt], why: str) -> dict[str, ast.expr]:
    """What a branch that does nothing else gives names to."""
    found: dict[str, ast.expr] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in found:
                found[name] = value
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value) if name not in found:
                joined = ast.BinOp(ast.Name(name, ast.Load()), op, value)
                found[name] = ast.copy_location(joined, target)
            case ast.Pass():
                continue
            case _:
                raise NoFix(why)
    return found


def _text(names: Names, value: ast.expr | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Name) and not hasattr(value.left, "lineno"):
        # An augmented assignment.
        right = names.source.segment(value.right)
        tight = isinstance(value.right, ast.Constant | ast.Name | ast.Call | ast.Subscript | ast.Attribute)
        sign = ast.unparse(ast.BinOp(ast.Name("a", ast.Load()), value.op, ast.Name("b", ast.Load())))[2:-2]
        return f"{value.left.id} {sign} {right if tight else f'({right})'}"
    return names.source.segment(value)
