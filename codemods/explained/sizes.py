"""Sizes that the hardware prescribes: MGF705 to MGF708, and MGF710."""

from mgpu_fix.catalogue import Signature

from .rule import Explained

_ALL = "0.10.2 to 0.12.0.1"


class TensorCoreOperands(Explained):
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
    """

    code = "MGF705"
    name = "tensor-core-operands"
    jax = _ALL
    by_hand = "(m, k) times (k, n) of one dtype, with m a multiple of 64 and n of 8; 64 or 128 rows in TMEM"
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


class SwizzleWidth(Explained):
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
    """

    code = "MGF706"
    name = "swizzle-width"
    jax = _ALL
    by_hand = "tiles of (8, swizzle in bytes // itemsize), which divide the shape"
    signatures = (
        Signature("ValueError", r"^Swizzle \d+ requires the trailing dimension to be of size"),
        Signature("NotImplementedError", r"^WGMMA [lr]hs tiling does not fit swizzle"),
        Signature("NotImplementedError", r"^WGMMA rhs swizzle must match lhs swizzle"),
        Signature("ValueError", r"^WGMMA [lr]hs has unsupported transforms: \[\w"),
        Signature("ValueError", r"^Expected slice start \(.*\) and slice size \(.*\) to be divisible by the tile size"),
    )


class CopySizes(Explained):
    """A copy between GMEM and SMEM has a shape that the TMA unit cannot move.

    ## What it means

    The TMA unit moves boxes of at most 256 elements along each axis, whose rows are multiples of 16 bytes, and every
    row of the array in GMEM must start at one. All of a copy must be a multiple of 128 bytes.

    ## Why it happens

    The array's last axis is not a multiple of 16 bytes long (4 elements of `float32`), or a block is too long.

    ## Example

    ```python
    plgpu.copy_gmem_to_smem(x_ref, s, barrier)  # x_ref has shape (512, 16)
    ```

    ## Use instead

    ```python
    for rows in (pl.ds(0, 256), pl.ds(256, 256)):
        plgpu.copy_gmem_to_smem(x_ref.at[rows], s.at[rows], barrier)  # Barrier(num_arrivals=2)
    ```

    Pad an array whose rows are too short outside of the kernel, or load it with `x_ref[...]`, which needs no TMA.
    """

    code = "MGF707"
    name = "copy-sizes"
    jax = _ALL
    by_hand = "copy at most 256 elements along each axis, of arrays whose rows are multiples of 16 bytes"
    signatures = (
        Signature("ValueError", r"^(Async copies require|async_copy requires) all GMEM strides except the last one"),
        Signature("ValueError", r"^Async copies only support copying <=256 elements along each dimension"),
        Signature("ValueError", r"^Async copies require the number of bits copied along the last dimension"),
        Signature(
            "NotImplementedError", r"^Only copies transferring a number of bytes divisible by the warpgroup size"
        ),
    )


class SharedMemoryExceeded(Explained):
    """A kernel needs more shared memory (SMEM) than a block has.

    ## What it means

    A block has 227 KiB of SMEM on Hopper and Blackwell. Scratch, scoped memory, and what pipelines keep of their blocks
    all come out of it.

    ## Why it happens

    Blocks are too large, or `max_concurrent_steps` keeps too many of them. The message says how much it would be.

    ## Example

    ```python
    scratch_types=[plgpu.SMEM((512, 256), jnp.float32)]  # 512 KiB
    ```

    ## Use instead

    ```python
    scratch_types=[plgpu.SMEM((128, 256), jnp.float32)]  # 128 KiB, and a loop over four of them
    ```

    Memory that is not used at the same time can be shared with `plgpu.RefUnion`, and scoped with `pl.run_scoped`.
    """

    code = "MGF708"
    name = "shared-memory-exceeded"
    jax = _ALL
    by_hand = "smaller blocks, or a smaller max_concurrent_steps"
    signatures = (Signature("ValueError", r"^Mosaic GPU kernel exceeds available shared memory"),)


RULES = (TensorCoreOperands(), SwizzleWidth(), CopySizes(), SharedMemoryExceeded())
