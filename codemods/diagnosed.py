"""Failures that are recognised and explained, and for which no fix is built yet."""

from mgpu_fix.catalogue import Signature

from .explained.rule import Explained

_ALL = "0.10.2 to 0.12.0"


class NestedWarpMap(Explained):
    """A warp-level region opens another region: a second `warp_map` or `core_map`, or a `run_scoped`.

    ## What it means

    Inside `plgpu.warp_map` (or `pl.core_map` with a `plgpu.WarpMesh`) the kernel is already split into single warps,
    and there is nothing left to split. Memory can only be allocated by the whole warpgroup.

    ## Why it happens

    Mostly a helper with a warp-level region of its own is called from one.

    ## Example

    ```python
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.warp_map
        def _(inner_id):
            o_ref[inner_id] = x_ref[inner_id]
    ```

    ## Use instead

    One region, and `pl.run_scoped` around it rather than in it:

    ```python
    @plgpu.warp_map
    def _(warp_id):
        o_ref[warp_id] = x_ref[warp_id]
    ```
    """

    code = "MGF102"
    name = "nested-warp-map"
    jax = _ALL
    by_hand = "merge the inner region into the outer one, and put run_scoped around it"
    signatures = (
        Signature(
            "NotImplementedError",
            r"^Unimplemented primitive .*: (core_map|mpmd_map|run_scoped) for .* user thread semantics "
            r"PrimitiveSemantics\.Warp",
        ),
        Signature("LoweringError", r"^Cannot nest (core|mpmd)_map"),
    )


class CapturedArray(Explained):
    """A kernel body uses an array from outside that is not one of its arguments.

    ## What it means

    A body may close over Python numbers, scalars and Refs. Arrays have to be operands: only those get a place in the
    GPU's memory and a Ref.

    ## Why it happens

    A table, a mask or a weight is defined at module level or in the function around the kernel, and used by its name.
    If the body is that of a warp-level region, the array may also be one that the kernel computed; see MGF101.

    ## Example

    ```python
    WEIGHTS = jnp.arange(128, dtype=jnp.float32)

    @plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * WEIGHTS
    ```

    ## Use instead

    ```python
    @plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    def scaled(x_ref, w_ref, o_ref):
        o_ref[...] = x_ref[...] * w_ref[...]

    scaled(x, WEIGHTS)
    ```
    """

    code = "MGF402"
    name = "captured-array"
    jax = _ALL
    by_hand = "pass the array to the kernel and give the body a parameter for it, before its outputs"
    signatures = (Signature("ValueError", r"captures (non-scalar array |non-Ref )?constants \["),)


RULES = (
    NestedWarpMap(),
    CapturedArray(),
)
