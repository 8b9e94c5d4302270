"""MGF506: operands of the tensor core that lie in SMEM in another layout than it reads."""

import ast
import functools
import itertools
from collections.abc import Iterable

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import Names, SourceError, SourceFile

from .allocations import allocations
from .arguments import keyword, spliced, with_argument
from .callees import public
from .imports import Imports
from .places import standing_at

_MODULE = "jax.experimental.pallas.mosaic_gpu"
_MAKERS = frozenset(f"{_MODULE}.{name}" for name in ("SMEM", "BlockSpec"))
_OPERATIONS = frozenset(f"{_MODULE}.{name}" for name in ("wgmma", "tcgen05_mma"))
#: Bytes of an element, by what a dtype's name ends in.
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}
_SWIZZLES = (128, 64, 32)


class WgmmaOperandTransforms(Rule):
    """An operand of `plgpu.wgmma` or `plgpu.tcgen05_mma` lies in SMEM without the tiling that the tensor core reads.

    ## What it means

    The tensor core reads SMEM in tiles whose rows are permuted (swizzled). The Ref has to be declared so.

    ## Why it happens

    Lane semantics (the default before JAX 0.11.0) take the layout from the declaration. Warpgroup semantics find it by
    themselves.

    ## Example

    ```python
    scratch_types=[plgpu.SMEM((64, 64), jnp.float16)]
    ```

    ## Use instead

    ```python
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))  # 64 = 128 bytes / 2 bytes
    scratch_types=[plgpu.SMEM((64, 64), jnp.float16, transforms=transforms)]
    ```

    ## Fix safety

    Safe: transforms say how the memory is laid out, not what is in it. Both operands get them, with the widest swizzle
    that JAX takes. Memory that `plgpu.inline_mgpu` sees, too, is left alone.
    """

    code = "MGF506"
    name = "wgmma-operand-transforms"
    jax = "0.10.2, and newer with Lane semantics"
    signatures = (
        Signature("ValueError", r"^When WGMMA \w+ is passed in as a ref, it must be transformed by"),
        Signature("ValueError", r"^WGMMA \w+ has unsupported transforms: \[\]"),
        Signature("NotImplementedError", r"^Unsupported transforms for [LR]HS: \[\]"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for each size of element and swizzle that may fit the operands' rows. Raises NoFix."""
        names = Names(source)
        made = _operands(names, failure)
        imports = Imports(names)
        module = imports.name(_MODULE)
        title = "Declare the operands tiled and swizzled"
        for size, swizzle in itertools.product(_sizes(names, made), _SWIZZLES):
            if not all(_fits(call, swizzle // size) for call in made):
                continue
            tiles = f"{module}.TilingTransform((8, {swizzle // size})), {module}.SwizzleTransform({swizzle})"
            add = functools.partial(with_argument, new=keyword("transforms", f"({tiles})"))
            try:
                edits = tuple(spliced(names, dict.fromkeys(made, add)))
            except SourceError as e:
                raise NoFix(str(e)) from e
            yield Candidate(f"{title}: {swizzle} bytes, elements of {size}", (*imports.edits, *edits))


RULES = (WgmmaOperandTransforms(),)


def _operands(names: Names, failure: Failure) -> list[ast.Call]:
    """The declarations of the operands that have no transforms."""
    call = next(
        (c for c in standing_at(names, failure.span, ast.Call) if public(names.resolve(c.func)) in _OPERATIONS), None
    )
    if call is None or len(call.args) < 3:
        raise NoFix("by hand: the operands must be tiled and swizzled where they are declared")
    made = [found for ref in call.args[1:3] for found in allocations(names, ref)]
    made = list(dict.fromkeys(found for found in made if public(names.resolve(found.func)) in _MAKERS))
    bare = [found for found in made if not any(k.arg in ("transforms", None) for k in found.keywords)]
    if not bare:
        raise NoFix("by hand: where the operands are declared is not found, or they have other transforms")
    if "inline_mgpu" in names.source.text:
        raise NoFix("by hand: inline_mgpu may rely on how the operands are laid out")
    return bare


def _sizes(names: Names, made: Iterable[ast.Call]) -> tuple[int, ...]:
    """Bytes of the operands' elements, all there are where they are not written out."""
    found = {_BYTES.get((names.resolve(c.args[1]) or "").rpartition(".")[2]) for c in made if len(c.args) > 1}
    sizes = tuple(size for size in found if size)
    return sizes if len(sizes) == 1 else (2, 4, 1)


def _fits(call: ast.Call, width: int) -> bool:
    """Whether rows of a declared shape divide into tiles of that width, as far as the shape is written out."""
    shape = call.args[0] if call.args else None
    last = shape.elts[-1] if isinstance(shape, ast.Tuple) and shape.elts else None
    return not isinstance(last, ast.Constant) or (isinstance(last.value, int) and last.value % width == 0)
