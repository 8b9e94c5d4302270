"""Slices of a Ref between places that are only known on the GPU: `pl.ds`, with a size that is known."""

import ast

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Candidate, Edit
from mgpu_fix.source import Names

from ..imports import Imports


def slices(names: Names, node: ast.Subscript) -> Candidate:
    """``ref[a : a + n]`` as ``ref[pl.ds(a, n)]``. Raises NoFix."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    found = [p for p in parts if isinstance(p, ast.Slice) and not _is_static(p)]
    if not found:
        raise NoFix("by hand: a list of Python's cannot be indexed with it; make an array of it, or use jnp.where")
    imports = Imports(names)
    edits = [_size(names, imports, part) for part in found]
    return Candidate("Slice with pl.ds", (*edits, *imports.edits))


def _is_static(part: ast.Slice) -> bool:
    return all(bound is None or isinstance(bound, ast.Constant) for bound in (part.lower, part.upper))


def _size(names: Names, imports: Imports, part: ast.Slice) -> Edit:
    source, lower, upper = names.source, part.lower, part.upper
    if lower is None or upper is None or part.step is not None:
        raise NoFix("by hand: pl.ds(start, size), with a size that is known when the kernel is traced")
    size = _difference(lower, upper)
    if size is None:
        raise NoFix(
            f"by hand: how much lies between `{source.segment(lower)}` and `{source.segment(upper)}` is not known"
        )
    start, end = source.bounds(part)
    text = f"{imports.name('jax.experimental.pallas')}.ds({source.segment(lower)}, {source.segment(size)})"
    return Edit(start, end, text)


def _difference(lower: ast.expr, upper: ast.expr) -> ast.expr | None:
    """The part of the bounds that lies between them, None where it does not stand there."""
    match upper:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            if _same(left, lower):
                return right
            if _same(right, lower):
                return left
    match lower, upper:
        case ast.BinOp(left=left, op=ast.Sub(), right=right), _ if _same(left, upper):
            return right
        case ast.BinOp(op=ast.Mult()), ast.BinOp(op=ast.Mult()):
            for start, width in ((lower.left, lower.right), (lower.right, lower.left)):
                for end, other in ((upper.left, upper.right), (upper.right, upper.left)):
                    if _same(width, other) and _is_next(start, end):
                        return width
    return None


def _is_next(start: ast.expr, end: ast.expr) -> bool:
    one = _difference(start, end)
    return isinstance(one, ast.Constant) and one.value == 1


def _same(a: ast.expr, b: ast.expr) -> bool:
    return ast.dump(a) == ast.dump(b)
