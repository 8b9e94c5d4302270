"""`for` over a range that is only known on the GPU: `pl.loop`, or `lax.fori_loop` where the steps hand on values."""

import ast

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Candidate, Edit
from mgpu_fix.source import Names

from ..imports import Imports
from .blocks import Needs, bound_in, check_closed, colon, nameless
from .effects import check_effects, check_watched


def loop(names: Names, statement: ast.For) -> Candidate:
    """What becomes of a ``for`` over a ``range``. Raises NoFix."""
    source, body = names.source, statement.body
    if not isinstance(statement.target, ast.Name) or statement.orelse:
        raise NoFix("by hand: use pl.loop or lax.fori_loop")
    counter = statement.target.id
    check_closed(body)
    check_watched(names, names.scope(statement))
    check_effects(names, body)
    need, bound = Needs(names, statement, body), bound_in(body)
    outside = [use for use in names.uses(counter, need.function) if not _is_in(use, body)]
    late = need.seen_by_functions(counter) or _repeats(names, statement)
    if counter in bound or (late and outside) or any((u.lineno, 0) > (statement.lineno, -1) for u in outside):
        raise NoFix(f"by hand: `{counter}` is used after the loop, or set in it")
    lower, upper, step = _bounds(names, statement.iter)
    carried = list(dict.fromkeys((*need.brought_in(), *need.taken_out())))
    for name in carried:
        if need.seen_by_functions(name):
            raise NoFix(f"by hand: hand on `{name}` with lax.fori_loop, and give it to the functions that read it")
    imports = Imports(names)
    indent, inner = source.indentation(statement.lineno), source.indentation(body[0].lineno)
    start, end = source.bounds(statement)[0], colon(names, statement.iter)
    if not carried:
        steps = f", step={step}" if step != "1" else ""
        head = f"@{imports.name('jax.experimental.pallas')}.loop({lower}, {upper}{steps})"
        made = f"{head}{source.newline}{indent}def {nameless(names, statement)}({counter}):"
        return Candidate("Loop with pl.loop", (Edit(start, end, made), *imports.edits))
    if step != "1" or body[0].lineno == statement.lineno:
        raise NoFix(f"by hand: hand on `{carried[0]}` with lax.fori_loop")
    for name in carried:
        if not _is_set_before(names, statement, name):
            raise NoFix(f"by hand: give `{name}` a value before the loop, and hand it on with lax.fori_loop")
    values = ", ".join(carried)
    given = values if len(carried) == 1 else f"({values})"
    name = _step(names, statement)
    taken = values if len(carried) == 1 else "carry"
    head = f"def {name}({counter}, {taken}):"
    if len(carried) > 1:
        head += f"{source.newline}{inner}{values} = carry"
    lax = imports.name("jax.lax")
    last = source.bounds(body[-1])[1]
    line = source.text.find("\n", last)
    at = len(source.text) if line < 0 else line + 1
    tail = f"{inner}return {values}{source.newline}"
    tail += f"{indent}{values} = {lax}.fori_loop({lower}, {upper}, {name}, {given}){source.newline}"
    if line < 0:
        tail = source.newline + tail
    edits = (Edit(start, end, head), Edit(at, at, tail), *imports.edits)
    return Candidate("Loop with lax.fori_loop, which hands on what the steps compute", edits)


def _repeats(names: Names, statement: ast.For) -> bool:
    """Whether the loop may be come to again, in one around it."""
    return any(isinstance(a, ast.For | ast.While) for a in names.ancestors(statement))


def _is_in(node: ast.AST, body: list[ast.stmt]) -> bool:
    return any(node is inner for statement in body for inner in ast.walk(statement))


def _bounds(names: Names, iterated: ast.expr) -> tuple[str, str, str]:
    match iterated:
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
            texts = [names.source.segment(a) for a in args]
            steps = args[2] if len(args) == 3 else None
            forward = steps is None or (
                isinstance(steps, ast.Constant) and isinstance(steps.value, int) and steps.value > 0
            )
            if not forward:
                raise NoFix(
                    "by hand: pl.loop takes steps forward only; count up, and compute the index from the counter"
                )
            if not any(isinstance(a, ast.Starred) for a in args):
                lower, upper = ("0", texts[0]) if len(texts) == 1 else texts[:2]
                return lower, upper, texts[2] if len(texts) == 3 else "1"
    raise NoFix("by hand: use pl.loop or lax.fori_loop")


def _is_set_before(names: Names, statement: ast.For, name: str) -> bool:
    """Whether ``name`` has a value whenever the loop is come to, as far as a look at what stands before tells."""
    function = names.scope(statement)
    parameters = function.args if isinstance(function, ast.FunctionDef | ast.Lambda) else None
    if parameters and name in {a.arg for a in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)}:
        return True
    stores = (n for n in names.nodes(ast.Name) if n.id == name and isinstance(n.ctx, ast.Store))
    return any(names.scope(n) is function and n.lineno < statement.lineno for n in stores)


def _step(names: Names, statement: ast.For) -> str:
    taken = {n.id for n in names.nodes(ast.Name)} | {n.name for n in names.nodes(ast.FunctionDef)}
    taken |= {n.arg for n in names.nodes(ast.arg)}
    return next(name for name in ("step", "step_of_loop", f"step_at_{statement.lineno}") if name not in taken)
