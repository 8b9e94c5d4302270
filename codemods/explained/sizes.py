"""Sizes that the hardware prescribes: MGF707 and MGF708."""

from mgpu_fix.catalogue import Signature

from .rule import Explained

_ALL = "0.10.2 to 0.12.0.1"


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


RULES = (CopySizes(), SharedMemoryExceeded())
