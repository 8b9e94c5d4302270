"""Errors that are not of a Mosaic GPU kernel, or that no kernel can cause: MGF801 to MGF803."""

from mgpu_fix.catalogue import Signature

from .rule import Explained


class TpuOnly(Explained):
    """An error of the kernels that JAX has for TPUs.

    ## What it means

    There is a grouped matrix multiplication (`gmm`, "megablox") written for TPUs. It checks its arguments, and is not
    for GPUs.

    ## Why it happens

    `(m, k) x (g, k, n)` and a list of group sizes do not fit each other, arrays are sharded explicitly, or code for
    TPUs is run on a GPU.

    ## Example

    ```python
    from jax.experimental.pallas.ops.tpu.megablox import gmm
    out = gmm(lhs, rhs, group_sizes)
    ```

    ## Use instead

    ```python
    out = jax.lax.ragged_dot(lhs, rhs, group_sizes)  # group_sizes has shape (g,), as rhs has (g, k, n)
    ```

    For Mosaic GPU there are `ragged_dot_mgpu` (Hopper) and `blackwell_ragged_dot_mgpu` in
    `jax.experimental.pallas.ops.gpu`.
    """

    code = "MGF801"
    name = "tpu-only"
    jax = "none here: JAX 0.10.2 to 0.12.0.1 do not have these words any more"
    by_hand = "it is raised by a kernel for TPUs; on a GPU use jax.lax.ragged_dot"
    signatures = (
        Signature("ValueError", r"^This gmm kernel only supports either"),
        Signature("NotImplementedError", r"^This gmm kernel only supports either"),
        Signature("ValueError", r"^Group sizes .* must match first dimension"),
        Signature("NotImplementedError", r"^Explicit sharding is not currently supported in the pallas-t"),
        Signature("ValueError", r"^Explicit sharding is not currently supported in the pallas-t"),
    )


class InterpreterAllocation(Explained):
    """The GPU interpreter contradicts itself over an allocation.

    ## What it means

    Pallas' interpreter gives memory that all warpgroups share to warpgroup 0, and checks that it did. No GPU is
    involved, and no kernel is at fault.

    ## Why it happens

    A kernel alone does not cause it, since the interpreter asks for the memory by itself. It was not met: that JAX's
    files belong to different versions is what could.

    ## Example

    ```python
    with plgpu.force_gpu_interpret_mode():
        out = kernel(x)
    ```

    ## Use instead

    The same in a fresh environment: `pip install --force-reinstall jax jaxlib`.
    """

    code = "MGF802"
    name = "interpreter-allocation"
    jax = "0.10.2 to 0.12.0.1, in the sources only"
    by_hand = "reinstall JAX; the kernel is not at fault"
    signatures = (Signature("ValueError", r"^`thread_id` must be zero when allocating a buffer for all th"),)


class SharedDtype(Explained):
    """Memory that shares its place with other memory holds a dtype whose size is not known.

    ## What it means

    `plgpu.RefUnion` puts several Refs into the same SMEM, and counts how many bits each of them takes: integers and
    floats only.

    ## Why it happens

    One of them is of `bool`, a key of random numbers, or a barrier.

    ## Example

    ```python
    plgpu.RefUnion(plgpu.SMEM((128,), jnp.bool_), plgpu.SMEM((128,), jnp.float32))
    ```

    ## Use instead

    ```python
    plgpu.RefUnion(plgpu.SMEM((128,), jnp.int8), plgpu.SMEM((128,), jnp.float32))
    ```
    """

    code = "MGF803"
    name = "dtype-in-union"
    jax = "0.10.2 to 0.12.0.1"
    by_hand = "integers or floats in the union, such as jnp.int8 for bool"
    signatures = (Signature("NotImplementedError", r"^Unsupported dtype: \{?\w+"),)


RULES = (TpuOnly(), InterpreterAllocation(), SharedDtype())
