"""MGF907: bodies of ``plgpu.nd_loop`` written for the indices that it once passed."""

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names
from mgpu_fix.source.names import FunctionNode
from mgpu_fix.versions import Window

from ..arguments import spliced, without_keyword
from ..callbacks import Callback, applied, only_called_by
from ..callees import Callees
from ..stores import unused
from .rules import Change, DriftRule, upgrade

_SYMBOL = "jax.experimental.pallas.mosaic_gpu.nd_loop"
_STEP = "wave_step"
_FIELDS = frozenset({"index", "local_index", "num_local_steps"})


class LoopInfo(DriftRule):
    """The body of `plgpu.nd_loop` expects the loop's indices, and gets an `NDLoopInfo`.

    ## What it means

    `plgpu.nd_loop` calls its body with one object that knows the indices and more. A body that unpacks it, or indexes
    it, was written for JAX before 0.8.0.

    ## Why it happens

    Until 0.7.2 the body got a tuple of indices, and with `include_wave_step=True` also the number of the iteration as
    `wave_step`. From 0.8.0 on both are attributes of `plgpu.NDLoopInfo`: `index` and `local_index`.

    ## Example

    ```python
    @plgpu.nd_loop((m, n), collective_axes="sm", include_wave_step=True)
    def loop(idx, wave_step):
        i, j = idx
    ```

    ## Use instead

    ```python
    @plgpu.nd_loop((m, n), collective_axes="sm")
    def loop(loop_info):
        wave_step = loop_info.local_index
        i, j = loop_info.index
    ```

    ## Fix safety

    Safe: the same values by their new names. A body is left alone where nothing in it shows that it takes its first
    parameter for a tuple, and where it is also called by something else.
    """

    code = "MGF907"
    name = "loop-body-info"
    jax = "0.8.0 and newer"
    kinds = ("callback",)
    nothing = "no body of plgpu.nd_loop that takes indices was found in this file"
    signatures = (
        Signature("TypeError", r"^nd_loop\(\) got an unexpected keyword argument 'include_wave_step'"),
        Signature("TypeError", r"^nd_loop\(\) takes 1 positional argument but \d+ "),
        Signature("TypeError", r"^cannot unpack non-iterable NDLoopInfo object"),
        Signature("TypeError", r"^'NDLoopInfo' object is not (subscriptable|iterable)"),
        Signature("TypeError", r"NDLoopInfo"),
    )

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for all loops of the file."""
        for change in known:
            if change.symbol != _SYMBOL or "nd_loop" not in names.source.text:
                continue
            callees = Callees(names, {_SYMBOL}, {"include_wave_step"})
            loops = [call for call in names.nodes(ast.Call) if callees.of(call) and _is_old(names, call)]
            yield from upgrade(names, change, window, loops, lambda calls: _rewritten(names, calls))


RULES = (LoopInfo(),)


def _keyword(call: ast.Call) -> ast.keyword | None:
    return next((k for k in call.keywords if k.arg == "include_wave_step"), None)


def _is_old(names: Names, call: ast.Call) -> bool:
    """Whether a loop passes its body the iteration's number, or has a body that takes its parameter for a tuple."""
    if _keyword(call):
        return True
    try:
        return any(_takes_tuple(names, callback) for callback in applied(names, call))
    except NoFix:
        return False


def _takes_tuple(names: Names, callback: Callback) -> bool:
    if not callback.parameters:
        return False
    uses = _uses(names, callback)
    if any(isinstance(p := names.parents[use], ast.Attribute) and p.attr in _FIELDS for use in uses):
        return False
    return any(_as_tuple(names, use) for use in uses)


def _uses(names: Names, callback: Callback) -> list[ast.Name]:
    return names.uses(callback.parameters[0].arg, callback.function)


def _as_tuple(names: Names, use: ast.Name) -> bool:
    match names.parents[use]:
        case ast.Subscript(value=value):
            return value is use
        case ast.Assign(targets=[ast.Tuple() | ast.List()]) | ast.Starred() | ast.For() | ast.comprehension():
            return True
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return isinstance(left, ast.Tuple) or isinstance(right, ast.Tuple)
    return False


def _rewritten(names: Names, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    callbacks: dict[FunctionNode, Callback] = {}
    for call in calls:
        given = _keyword(call)
        if given is not None:
            if not isinstance(given.value, ast.Constant):
                raise NoFix(f"whether the body gets wave_step at line {given.value.lineno} is not written out")
            yield from _without(names, call, given)
        for callback in applied(names, call):
            callbacks[callback.function] = callback
    users = [outer for call in calls if isinstance(outer := names.parents[call], ast.expr)]
    for callback in callbacks.values():
        only_called_by(names, callback, [*users, *calls])
        yield from _new_body(names, callback)


def _without(names: Names, call: ast.Call, gone: ast.keyword) -> Iterator[Edit]:
    yield from spliced(names, {call: functools.partial(without_keyword, name=gone.arg or "")})


def _new_body(names: Names, callback: Callback) -> Iterable[Edit]:
    source, function = names.source, callback.function
    if not callback.parameters:
        raise NoFix(f"the body at line {function.lineno} takes no indices by a name of their own")
    index = callback.parameters[0]
    step = next((p for p in (*callback.parameters, *function.args.kwonlyargs) if p.arg == _STEP), None)
    if len(names.members(function).get(index.arg, [])) > 1:
        raise NoFix(f"`{index.arg}` is bound again in the body at line {function.lineno}")
    info = unused("loop_info", names.source.tree)
    edits = [Edit(*source.bounds(index), info)]
    edits += [Edit(*source.bounds(use), f"{info}.index") for use in _uses(names, callback)]
    if step is None:
        return edits
    edits.append(_parameter_gone(names, function, step))
    if isinstance(function, ast.Lambda):
        uses = names.uses(_STEP, function)
        return [*edits, *(Edit(*source.bounds(use), f"{info}.local_index") for use in uses)]
    first = function.body[0]
    if first.lineno == function.lineno:
        raise NoFix(f"the body at line {function.lineno} stands on one line")
    is_doc = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    line = (first.end_lineno or first.lineno) + 1 if is_doc else _first_line(first)
    at = source.starts[line - 1] if line <= len(source.starts) else len(source.text)
    return [*edits, Edit(at, at, f"{source.indentation(first.lineno)}{_STEP} = {info}.local_index{source.newline}")]


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _parameter_gone(names: Names, function: FunctionNode, gone: ast.arg) -> Edit:
    """The parameter list without one that has another before it."""
    source = names.source
    taken = function.args
    ordered = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
    before = ordered[ordered.index(gone) - 1]
    defaults = [d for d in (*taken.defaults, *taken.kw_defaults) if d is not None]
    _, start = source.bounds(before)
    _, end = source.bounds(gone)
    if (
        any(source.bounds(d)[0] >= start and source.bounds(d)[0] <= end + 3 for d in defaults)
        or "*" in source.text[start:end]
    ):
        raise NoFix(f"`{_STEP}` at line {gone.lineno} stands among defaults")
    if "#" in source.text[start:end]:
        raise NoFix(f"a comment stands before `{_STEP}` at line {gone.lineno}")
    return Edit(start, end, "")
