"""MGF416: a loop's body that does not return what the next step gets."""

import ast
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import own_nodes

from ..places import standing_at

#: loops by their name, with the place of the body and that of its parameter for what is handed on
_LOOPS = {"jax.lax.fori_loop": (2, 1), "jax.lax.while_loop": (1, 0)}
_LOOP = "jax.experimental.pallas.loop"


class LoopBodyWithoutReturn(Rule):
    """The body of a loop computes what the next step is to get, and does not return it.

    ## What it means

    `lax.fori_loop`, `lax.while_loop` and `pl.loop(..., init_carry=...)` hand on what the body returns. Names that it
    sets are its own.

    ## Why it happens

    The loop was Python's `for`, in which names keep their values.

    ## Example

    ```python
    def body(i, best):
        best = jnp.maximum(best, x_ref[i])

    best = lax.fori_loop(0, 4, body, x_ref[0])
    ```

    ## Use instead

    ```python
    def body(i, best):
        best = jnp.maximum(best, x_ref[i])
        return best

    best = lax.fori_loop(0, 4, body, x_ref[0])
    ```

    ## Fix safety

    Safe where the body returns nothing at all and sets the very names that it is handed: these are returned, in their
    order. Others are left.
    """

    code = "MGF416"
    name = "loop-body-without-return"
    jax = "0.10.2 to 0.12.0.1"
    signatures = (
        Signature(
            "TypeError", r"^scan body function carry input .* component of the carry output is a <class 'NoneType'>"
        ),
        Signature(
            "TypeError", r"^while_loop body function carry input and carry output .*output tree .*PyTreeDef\(None\)"
        ),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: what it is handed is returned. Raises NoFix."""
        names = Names(source)
        for body, carry in _bodies(names, failure):
            handed = _handed(body, carry)
            inside = list(own_nodes(body))
            returns = any(isinstance(n, ast.Return | ast.Yield | ast.YieldFrom) for n in inside)
            stored = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            last = body.body[-1]
            if returns or not handed or not stored & {*handed} or last.lineno == body.lineno:
                continue
            indent = source.indentation(body.body[0].lineno)
            end = source.text.find("\n", source.bounds(last)[1])
            at = len(source.text) if end < 0 else end + 1
            text = f"{indent}return {', '.join(handed)}{source.newline}"
            edit = Edit(at, at, text if end >= 0 else source.newline + text)
            yield Candidate("Return what the next step is to get", (edit,))
            return
        raise NoFix("by hand: return what the next step is to get, with the structure of what the first one got")


RULES = (LoopBodyWithoutReturn(),)


def _bodies(names: Names, failure: Failure) -> Iterator[tuple[ast.FunctionDef, int]]:
    """The bodies of the loops at the failing place, with the place of the parameter that receives what is handed on."""
    for call in standing_at(names, failure.span, ast.Call):
        dotted = names.resolve(call.func) or ""
        parent = names.parents[call]
        if dotted == _LOOP and isinstance(parent, ast.FunctionDef) and call in parent.decorator_list:
            yield parent, 1
        if dotted in _LOOPS:
            place, carry = _LOOPS[dotted]
            given = call.args[place] if len(call.args) > place else None
            bound = names.binding(given.id, given) if isinstance(given, ast.Name) else None
            if isinstance(bound, ast.FunctionDef):
                yield bound, carry


def _handed(body: ast.FunctionDef, carry: int) -> list[str]:
    """The names by which a body knows what it is handed: its parameter, or those that it is unpacked to."""
    if len(body.args.args) <= carry:
        return []
    parameter = body.args.args[carry].arg
    for statement in body.body:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Name(id=name)) if name == parameter:
                names = [e.id for e in elements if isinstance(e, ast.Name)]
                return names if len(names) == len(elements) else []
    return [parameter]
