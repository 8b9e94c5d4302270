"""Bodies that surely return a value, seen in the source alone; nothing is run."""

import ast
from collections.abc import Iterator

from mgpu_fix.model import Span
from mgpu_fix.source import Names
from mgpu_fix.source.flow import is_array, own_nodes
from mgpu_fix.source.names import FunctionNode

_PALLAS = "jax.experimental.pallas."
_PLGPU = f"{_PALLAS}mosaic_gpu."
#: what makes a kernel of the function that it decorates, or is given first, and what it does with a returned value
_ENTRIES = {
    **dict.fromkeys((f"{_PALLAS}kernel", f"{_PALLAS}pallas_call", f"{_PLGPU}warp_map"), "which JAX refuses"),
    f"{_PALLAS}core_map": "which JAX refuses",
    f"{_PLGPU}kernel": "which JAX drops without a word",
}


def returns(names: Names) -> Iterator[tuple[Span, str]]:
    """Each ``return`` of a body that gives a value on every way through it, and what becomes of that."""
    if not any(names.imported(alias).startswith(_PLGPU.rstrip(".")) for alias in names.nodes(ast.alias)):
        return
    for body, fate in dict(_bodies(names)).items():
        found = [] if isinstance(body, ast.Lambda) else [n for n in own_nodes(body) if isinstance(n, ast.Return)]
        if isinstance(body, ast.Lambda):
            if _is_value(names, body.body, body):
                yield names.source.span(body.body), f"the kernel returns a value, {fate}; store it through a Ref"
        elif _is_generator(body):
            continue
        elif any(n in body.body for n in found) and all(n.value and _is_value(names, n.value, body) for n in found):
            for node in found:
                yield names.source.span(node), f"{body.name} returns a value, {fate}; store it through a Ref"


def _bodies(names: Names) -> Iterator[tuple[FunctionNode, str]]:
    for function in names.nodes(ast.FunctionDef):
        # What stands under an entry point may make another function of the body.
        if function.decorator_list and (fate := _fate(names, function.decorator_list[-1])):
            yield function, fate
    for call in names.nodes(ast.Call):
        fate = _fate(names, call.func)
        body = call.args[0] if call.args else None
        if isinstance(body, ast.Name):
            bound = names.binding(body.id, body)
            body = bound if isinstance(bound, ast.FunctionDef | ast.Lambda) else None  # type: ignore[assignment]
        if fate and isinstance(body, ast.FunctionDef | ast.Lambda) and not getattr(body, "decorator_list", []):
            yield body, fate


def _fate(names: Names, maker: ast.expr) -> str:
    """What ``maker``, which gets a function, does with its value; empty where it is no entry point."""
    if isinstance(maker, ast.Call):
        if names.resolve(maker.func) == "functools.partial" and maker.args[1:] == []:
            return _fate(names, maker.args[0]) if maker.args else ""
        # An entry point that has its options, and no body yet; the mesh of a core_map is one.
        dotted = names.resolve(maker.func) or ""
        return _ENTRIES.get(dotted, "") if len(maker.args) == (dotted == f"{_PALLAS}core_map") else ""
    return _ENTRIES.get(names.resolve(maker) or "", "")


def _is_generator(function: FunctionNode) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))


def _is_value(names: Names, value: ast.expr, body: FunctionNode) -> bool:
    """Whether an expression is surely not None."""
    match value:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Dict(values=elements):
            return any(_is_value(names, e, body) for e in elements)
        case ast.IfExp():
            return _is_value(names, value.body, body) and _is_value(names, value.orelse, body)
        case ast.Name() if names.home(value.id, value) is body:
            bound = names.binding(value.id, value)
            return _is_ref(names, value, body) or (isinstance(bound, ast.expr) and _computes(names, bound, body))
    return _computes(names, value, body)


def _computes(names: Names, value: ast.expr, body: FunctionNode) -> bool:
    match value:
        case ast.Constant():
            return value.value is not None
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return True
        case ast.Subscript(value=ast.Name() as ref):
            return _is_ref(names, ref, body)
        case ast.Call():
            return is_array(names, value)
    return False


def _is_ref(names: Names, name: ast.Name, body: FunctionNode) -> bool:
    """Whether a name is that of a parameter which the entry point fills."""
    bound = names.binding(name.id, name)
    return bound in (*body.args.posonlyargs, *body.args.args) and names.home(name.id, name) is body
