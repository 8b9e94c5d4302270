"""Operands that are in the wrong order, memory or shape for what works on them: MGF410, MGF705 and MGF706."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .callees import public
from .places import standing_at

Shape: TypeAlias = Sequence[int]

_ALL = "0.10.2 to 0.12.0.1"
_PLGPU = "jax.experimental.pallas.mosaic_gpu."
_COPIES = frozenset({f"{_PLGPU}copy_smem_to_gmem", f"{_PLGPU}copy_gmem_to_smem"})
_MULTIPLIES = frozenset({f"{_PLGPU}wgmma", f"{_PLGPU}tcgen05_mma"})
#: swizzles that there are, in bytes
_WIDTHS = (128, 64, 32)
_READINGS = {"exchanged": "Exchange lhs and rhs", "rhs": "Transpose the rhs", "lhs": "Transpose the lhs"}


class MemoryOfOperand(Rule):
    """A function of `plgpu` is given a Ref to another memory than it works on.

    ## What it means

    `copy_gmem_to_smem(src, dst, barrier)` and `copy_smem_to_gmem(src, dst)` have the memories in their names.
    `async_store_tmem`, `async_load_tmem` and the accumulator of `tcgen05_mma` are for TMEM.

    ## Why it happens

    Arguments are in the wrong order, or scratch is declared with `plgpu.SMEM` in place of `plgpu.TMEM`.

    ## Example

    ```python
    plgpu.copy_gmem_to_smem(x_smem, x_ref, barrier)
    ```

    ## Use instead

    ```python
    plgpu.copy_gmem_to_smem(x_ref, x_smem, barrier)
    ```

    ## Fix safety

    Two Refs of a copy that stand in the wrong order are exchanged, in the copy or, if that gets them from its own
    caller, there, where numbers prove it, of a reference or a golden file. The rest is left.
    """

    code = "MGF410"
    name = "memory-of-operand"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^(src|dst) must be a \w+ reference, got"),
        Signature("ValueError", r"^Async (store|load) only supports TMEM refs"),
        Signature("ValueError", r"^Accumulator must be a TMEM Ref"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """The Refs of a copy in the other order, in a call of what copies or in the copy. Raises NoFix."""
        names = Names(source)
        for call in standing_at(names, failure.span, ast.Call):
            if public(names.resolve(call.func)) in _COPIES and len(call.args) > 1:
                for pair in (*_given(names, call), (call.args[0], call.args[1])):
                    yield Candidate("Exchange source and destination", _exchanged(source, *pair), needs_oracle=True)
                return
        raise NoFix("by hand: the source comes first; TMEM is declared with plgpu.TMEM")


class TensorCoreOperands(Rule):
    """Operands of the tensor core have shapes or dtypes that it does not multiply.

    ## What it means

    `plgpu.wgmma(acc, a, b)` wants `a` as (m, k), `b` as (k, n) and `acc` as (m, n), with m a multiple of 64 and n one
    of 8. Accumulators in TMEM have 64 or 128 rows. Both operands have one dtype;
    8-bit integers want an accumulator of `int32`, and only 16-bit floats can be transposed (`b.T`).

    ## Why it happens

    A block is smaller than the hardware's, `b` is stored as (n, k) and needs `.T`, or one operand was not converted.

    ## Example

    ```python
    plgpu.ACC((32, 128), jnp.float32)
    ```

    ## Use instead

    ```python
    plgpu.ACC((64, 128), jnp.float32)  # and rows of zeros for what is not there
    ```

    ## Fix safety

    Where the shapes fit once lhs and rhs are exchanged, or one of them is transposed, that is done if numbers prove it,
    of a reference or a golden file. Dtypes, and sizes that the tensor core does not have, are left.
    """

    code = "MGF705"
    name = "tensor-core-operands"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^WGMMA requires m and n to be multiples of"),
        Signature("VerificationError", r"'mosaic_gpu\.wgmma' op "),
        Signature("ValueError", r"TMEM references must have either 128 or 64 rows"),
        Signature("ValueError", r"^(Accumulator and [LR]HS|LHS and RHS) have incompatible shapes"),
        Signature("ValueError", r"^Incompatible shapes for matrix multiplication"),
        Signature("ValueError", r"^Only f16 WGMMA supports transposes"),
        Signature("ValueError", r"^WGMMA with element type \w+ only supports accumulators of type"),
        Signature("ValueError", r"^Mixed input dtypes for matrix multiplication unsupported"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """The other orders and transpositions in which the shapes fit. Raises NoFix."""
        names = Names(source)
        shapes = _shapes(failure.message)
        for call in standing_at(names, failure.span, ast.Call):
            operands = call.args[1:3]
            if public(names.resolve(call.func)) not in _MULTIPLIES or len(operands) < 2:
                continue
            lhs, rhs = operands
            found = list(_readings(*shapes)) if shapes else []
            for reading in found:
                yield Candidate(_READINGS[reading], tuple(_rewritten(source, lhs, rhs, reading)), needs_oracle=True)
            if found:
                return
        raise NoFix(
            "by hand: (m, k) times (k, n) of one dtype, with m a multiple of 64 and n of 8; 64 or 128 rows in TMEM"
        )


class SwizzleWidth(Rule):
    """A tile is not as wide as the swizzle of its memory.

    ## What it means

    `plgpu.SwizzleTransform(128)` permutes rows of 128 bytes. The tiles of the same memory must be as wide: 128 bytes
    are 64 elements of 16 bits, or 32 of 32 bits.

    ## Why it happens

    The tiling was written for another dtype. Both operands of a `wgmma` must have the same swizzle, tiles of 8 rows,
    and both transforms; a part of a tiled Ref begins and ends where tiles do. Where the shape is no multiple of the
    tile at all, JAX stops with an `AssertionError` that has no message.

    ## Example

    ```python
    plgpu.SMEM((128, 128), jnp.float32, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)))
    ```

    ## Use instead

    ```python
    plgpu.SMEM((128, 128), jnp.float32, transforms=(plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(128)))
    ```

    ## Fix safety

    Safe: how memory is laid out changes nothing that is computed, and what does not fit is refused when the kernel is
    lowered. A width that there is none of becomes the next smaller one, a tile as wide as its swizzle. Tiles whose
    width is computed, and parts that do not begin where tiles do, are left.
    """

    code = "MGF706"
    name = "swizzle-width"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^Swizzle \d+ is not supported\. Only "),
        Signature("ValueError", r"^Swizzle \d+ requires the trailing dimension to be of size"),
        Signature("NotImplementedError", r"^WGMMA [lr]hs tiling does not fit swizzle"),
        Signature("NotImplementedError", r"^WGMMA rhs swizzle must match lhs swizzle"),
        Signature("ValueError", r"^WGMMA [lr]hs has unsupported transforms: \[\w"),
        Signature("ValueError", r"^Expected slice start \(.*\) and slice size \(.*\) to be divisible by the tile size"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Swizzles that there are; tiles as wide as the swizzle, all that fail alike or each alone. Raises NoFix."""
        names = Names(source)
        if failure.message.startswith("Swizzle") and "not supported" in failure.message:
            yield from _narrower(names, failure)
            return
        found = re.search(r"to be of size (\d+), but got shape: \([\d, ]*?(\d+)\)", failure.message)
        tiles = _tiles(names, int(found[2])) if found else []
        if found is None or not tiles:
            raise NoFix("by hand: tiles of (8, swizzle in bytes // itemsize), which divide the shape")
        for group in (tiles, *([tile] for tile in tiles if len(tiles) > 1)):
            edits = tuple(Edit(*source.bounds(tile), found[1]) for tile in group)
            yield Candidate(f"Tiles of {found[1]} elements", edits)


RULES = (MemoryOfOperand(), TensorCoreOperands(), SwizzleWidth())


# ---------------------------------------------------------------------- copies


def _exchanged(source: SourceFile, a: ast.expr, b: ast.expr) -> tuple[Edit, Edit]:
    return Edit(*source.bounds(a), source.segment(b)), Edit(*source.bounds(b), source.segment(a))


def _given(names: Names, copy: ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What the callers of a helper give it for the two Refs that it copies, caller by caller."""
    function = names.scope(copy)
    if not isinstance(function, ast.FunctionDef):
        return
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    refs = [a.id for a in copy.args[:2] if isinstance(a, ast.Name) and a.id in parameters]
    if len(refs) < 2:
        return
    first, second = (parameters.index(ref) for ref in refs)
    for call in names.nodes(ast.Call):
        called = isinstance(call.func, ast.Name) and names.binding(call.func.id, call.func) is function
        if called and len(call.args) > max(first, second):
            yield call.args[first], call.args[second]


# ---------------------------------------------------------------------- multiplications


def _shapes(message: str) -> tuple[Shape | None, Shape | None, Shape | None] | None:
    """The shapes of lhs, rhs and accumulator, as far as an error names them; None where it names none."""
    found = {}
    for name in ("lhs", "rhs", "acc"):
        words = {"acc": "acc|Accumulator"}.get(name, name)
        shape = re.search(rf"(?i)\b(?:{words})(?:=|: )(?:b\.shape=)?\((\d+), (\d+)\)", message)
        found[name] = (int(shape[1]), int(shape[2])) if shape else None
    shapes = found["lhs"], found["rhs"], found["acc"]
    return shapes if any(shapes) else None


def _readings(lhs: Shape | None, rhs: Shape | None, acc: Shape | None) -> Iterator[str]:
    """The ways to read two operands in which all shapes that are known fit."""
    if lhs and rhs and _fit(rhs, lhs, acc):
        yield "exchanged"
    if rhs and rhs[0] != rhs[1] and _fit(lhs, rhs[::-1], acc):
        yield "rhs"
    if lhs and lhs[0] != lhs[1] and _fit(lhs[::-1], rhs, acc):
        yield "lhs"


def _fit(lhs: Shape | None, rhs: Shape | None, acc: Shape | None) -> bool:
    """Whether (m, k) times (k, n) is (m, n), where these are known."""
    return (
        (not lhs or not rhs or lhs[1] == rhs[0])
        and (not lhs or not acc or lhs[0] == acc[0])
        and (not rhs or not acc or rhs[1] == acc[1])
    )


def _rewritten(source: SourceFile, lhs: ast.expr, rhs: ast.expr, reading: str) -> Iterator[Edit]:
    if reading == "exchanged":
        yield from _exchanged(source, lhs, rhs)
        return
    operand = rhs if reading == "rhs" else lhs
    end = source.bounds(operand)[1]
    yield Edit(end, end, ".transpose((1, 0))")


# ---------------------------------------------------------------------- tiles


def _narrower(names: Names, failure: Failure) -> Iterator[Candidate]:
    for call in standing_at(names, failure.span, ast.Call):
        given = [*call.args, *(k.value for k in call.keywords)]
        if len(given) != 1:
            continue
        bound = names.binding(given[0].id, given[0]) if isinstance(given[0], ast.Name) else given[0]
        refused = f"Swizzle {getattr(bound, 'value', '')} "
        if isinstance(bound, ast.Constant) and isinstance(bound.value, int) and failure.message.startswith(refused):
            for width in (w for w in _WIDTHS if w < bound.value):
                yield Candidate(f"Swizzle by {width} bytes", (Edit(*names.source.bounds(given[0]), str(width)),))
            return
    raise NoFix("by hand: SwizzleTransform takes 32, 64 or 128 bytes")


def _tiles(names: Names, width: int) -> list[ast.expr]:
    """Where the file says that tiles are that wide, in so many words."""
    found = []
    for call in names.nodes(ast.Call):
        match call:
            case ast.Call(args=[ast.Tuple(elts=[*_, last]) | ast.List(elts=[*_, last])]):
                bound = names.binding(last.id, last) if isinstance(last, ast.Name) else last
                literal = isinstance(bound, ast.Constant) and bound.value == width
                if literal and public(names.resolve(call.func)) == f"{_PLGPU}TilingTransform":
                    found.append(last)
    return found
