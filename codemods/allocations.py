"""Where the memory is declared that a parameter of a kernel's body stands for: scratch, scopes, a pipeline's blocks."""

import ast
from collections.abc import Iterator

from mgpu_fix.catalogue import NoFix
from mgpu_fix.source import Names
from mgpu_fix.source.names import FunctionNode

from .callbacks import given
from .callees import public

_PALLAS = "jax.experimental.pallas."
_PLGPU = f"{_PALLAS}mosaic_gpu."
_SCOPED = f"{_PALLAS}run_scoped"
_PIPELINES = frozenset({f"{_PLGPU}emit_pipeline", f"{_PLGPU}emit_pipeline_warp_specialized"})
_SCRATCH = ("scratch_types", "scratch_shapes")


def allocations(names: Names, ref: ast.expr) -> list[ast.Call]:
    """The calls that declare the memory of a Ref, or of the Ref that ``ref`` is a part of: one for each kernel, scope
    or pipeline that runs the function which takes it."""
    base = _base(ref)
    parameter = names.binding(base.id, base) if base is not None else None
    function = names.scope(parameter) if isinstance(parameter, ast.arg) else None
    if not isinstance(parameter, ast.arg) or not isinstance(function, ast.FunctionDef | ast.Lambda):
        return []
    declared = (_declared(names, call, function, parameter) for call in names.nodes(ast.Call))
    found = (next((v for v in values if isinstance(v, ast.Call)), None) for values in declared)
    return [call for call in found if call is not None]


def _base(ref: ast.expr) -> ast.Name | None:
    """The name that ``ref.at[...]``, ``ref.T`` or ``plgpu.transpose_ref(ref, ...)`` begins with."""
    while not isinstance(ref, ast.Name):
        match ref:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner):
                ref = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="transpose" | "reshape" | "bitcast")):
                ref = inner
            case ast.Call(func=ast.Attribute(attr="transpose_ref"), args=[inner, *_]):
                ref = inner
            case _:
                return None
    return ref


def _declared(names: Names, call: ast.Call, function: FunctionNode, parameter: ast.arg) -> Iterator[ast.expr]:
    """What ``call`` declares for a parameter of ``function``, if it runs that."""
    by_place = function.args.args
    scratch = next((k.value for k in call.keywords if k.arg in _SCRATCH), None)
    if scratch is not None and runs(names, call, function):
        if isinstance(scratch, ast.Tuple | ast.List) and parameter in by_place[-len(scratch.elts) :]:
            yield scratch.elts[by_place.index(parameter) - len(by_place)]
        yield from (value for name, value in _named(scratch) if name == parameter.arg)
    partial = bool(call.args) and names.resolve(call.func) == "functools.partial"
    dotted = public(names.resolve(call.args[0] if partial else call.func))
    if dotted == _SCOPED and runs(names, call, function):
        yield from (k.value for k in call.keywords if k.arg == parameter.arg)
        if parameter in by_place[: len(call.args) - 1]:
            yield call.args[by_place.index(parameter) + 1]
    specs = next((k.value for k in call.keywords if k.arg == "in_specs"), None)
    if not isinstance(specs, ast.Tuple | ast.List) or dotted not in _PIPELINES or not runs(names, call, function):
        return
    # The body's first parameter is the indices.
    if parameter in by_place[1 : len(specs.elts) + 1]:
        yield specs.elts[by_place.index(parameter) - 1]


def _named(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Keys and values of a dictionary that is written out."""
    match value:
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from ((k.arg, k.value) for k in keywords if k.arg)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            yield from ((k.value, v) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str))


def runs(names: Names, call: ast.Call, function: FunctionNode) -> bool:
    """Whether a call is given ``function`` as a body, or decorates it."""
    if names.parents[call] is function:
        return True
    for value in (*call.args, *(k.value for k in call.keywords if k.arg in ("body", "f"))):
        try:
            if given(names, value).function is function:
                return True
        except NoFix:
            continue
    return False
