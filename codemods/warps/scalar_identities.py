"""Scalar operations that have no warp-level lowering, written with ones that have: ``x**2`` becomes ``x * x``."""

import ast
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit, Failure
from mgpu_fix.source import Names, SourceFile, Splice

from ..imports import Imports
from ..stores import ATOMS, parenthesised
from .regions import WarpRegion

_MISSING = re.compile(r"^Unimplemented primitive in Pallas Mosaic GPU lowering: (\w+) for ")
_INVERT = ("jax.numpy.invert", "jax.numpy.bitwise_not", "jax.numpy.bitwise_invert", "jax.lax.bitwise_not")
Rewrite: TypeAlias = Callable[[Any], cst.BaseExpression]


def failing_scalar(failure: Failure) -> str:
    """Name of the scalar operation that JAX has no lowering for; empty where it is something else that fails."""
    found = next((m[1] for _, text in failure.chain if (m := _MISSING.match(text))), "")
    places = [o for r in failure.facts.regions for o in r.operations if o.name == found and failure.span in o.spans]
    return found if places and all(not o.shape and not o.outer for o in places) else ""


def rewritten(source: SourceFile, names: Names, regions: list[WarpRegion], primitive: str) -> list[Edit]:
    """Every such operation of the regions in other words. Raises NoFix where one cannot be put so."""
    imports = Imports(names)
    edits = []
    for region in regions:
        spans = {span for o, span in region.operations if o.name == primitive and not o.shape}
        nodes = [n for n in ast.walk(region.function) if isinstance(n, ast.expr) and source.bounds(n) in spans]
        if len(nodes) < len(spans):
            raise NoFix(f"`{primitive}` is done in a place that is not known")
        if not nodes:
            continue
        splice = Splice(source, region.function)
        for node in nodes:
            dtype = next(
                o.dtype for o, span in region.operations if span == source.bounds(node) and o.name == primitive
            )
            splice.on(node, _rewrite(source, names, imports, primitive, node, dtype), cst.BaseExpression)
        edits.append(splice.edit())
    return [*imports.edits, *edits]


def _rewrite(source: SourceFile, names: Names, imports: Imports, primitive: str, node: ast.expr, dtype: str) -> Rewrite:
    called = (names.resolve(node.func) or getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    match primitive, node:
        case "neg", ast.UnaryOp(op=ast.USub()):
            return lambda old: fitted(names, node, minus(old.expression, dtype))
        case "neg", ast.Call(args=[_], keywords=[]) if called in ("jax.numpy.negative", "jax.lax.neg"):
            return lambda old: fitted(names, node, minus(old.args[0].value, dtype))
        case "not", ast.UnaryOp(op=ast.Invert()) if "int" in dtype:
            return lambda old: fitted(names, node, inverted(old.expression))
        case "not", ast.Call(args=[_], keywords=[]) if called in _INVERT and "int" in dtype:
            return lambda old: fitted(names, node, inverted(old.args[0].value))
        case "integer_pow", ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=2 | 3 as power)):
            _check_simple(source, left)
            factors = 2 if power == 2 else 3
            return lambda old: fitted(names, node, product(old.left, factors))
        case (("square" | "integer_pow"), ast.Call(args=[x])) if called == "jax.numpy.square":
            _check_simple(source, x)
            return lambda old: fitted(names, node, product(old.args[0].value, 2))
        case "abs", ast.Call(args=[x]) if called in ("abs", "jax.numpy.abs", "jax.lax.abs"):
            _check_simple(source, x)
            largest = f"{imports.name('jax.numpy')}.maximum"
            return lambda old: _call(largest, old.args[0].value, minus(old.args[0].value, dtype))
        case "clamp", ast.Call(args=[_, _, _], keywords=[]) if called == "jax.lax.clamp":
            library = imports.name("jax.numpy")
            return lambda old: _clamped(library, *(a.value for a in old.args))
    raise NoFix(f"`{primitive}` at line {node.lineno} has no warp-level lowering, and no other form that is known")


def minus(x: cst.BaseExpression, dtype: str) -> cst.BinaryOperation:
    """``-x`` without a unary minus, which has no warp-level lowering under Warpgroup semantics. ``0 - x`` is not the
    negative of a float that is zero."""
    if "float" in dtype:
        return cst.BinaryOperation(_operand(x), cst.Multiply(), cst.parse_expression("-1"))
    return cst.BinaryOperation(cst.Integer("0"), cst.Subtract(), _operand(x))


def inverted(x: cst.BaseExpression) -> cst.BinaryOperation:
    """``~x`` of an integer, which has no warp-level lowering either: all bits of -1 are set."""
    return cst.BinaryOperation(_operand(x), cst.BitXor(), cst.parse_expression("-1"))


def product(x: cst.BaseExpression, factors: int) -> cst.BinaryOperation:
    """``x * x``, or with more factors."""
    made: Any = _operand(x)
    for _ in range(factors - 1):
        made = cst.BinaryOperation(made, cst.Multiply(), _operand(x).deep_clone())
    return cast(cst.BinaryOperation, made)


def fitted(names: Names, node: ast.expr, made: cst.BinaryOperation) -> cst.BaseExpression:
    """What was made in place of ``node``, in parentheses where something else would take a part of it."""
    parent = names.parents[node]
    open_ = isinstance(parent, ast.stmt | ast.keyword | ast.Tuple | ast.List) or (
        isinstance(parent, ast.Call) and parent.func is not node
    )
    return made if open_ else made.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _operand(x: cst.BaseExpression) -> cst.BaseExpression:
    return x if isinstance(x, (*ATOMS, cst.BaseNumber)) else parenthesised(x)


def _clamped(library: str, low: Any, x: Any, high: Any) -> cst.Call:
    return _call(f"{library}.minimum", _call(f"{library}.maximum", x, low), high)


def _call(function: str, *args: cst.BaseExpression) -> cst.Call:
    return cst.Call(cst.parse_expression(function), [cst.Arg(a) for a in args])


def _check_simple(source: SourceFile, node: ast.expr) -> None:
    """Raises NoFix where repeating ``node`` would repeat more than one step of arithmetic."""
    is_step = isinstance(node, ast.UnaryOp | ast.BinOp)
    parts = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
    if is_step and all(isinstance(part, ast.Name | ast.Constant) for part in parts):
        return
    if not isinstance(node, ast.Name | ast.Subscript | ast.Attribute):
        raise NoFix(f"`{source.segment(node)}` at line {node.lineno} would be computed twice; give it a name")
