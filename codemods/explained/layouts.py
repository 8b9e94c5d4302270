"""What JAX finds no layout for, and what it has no GPU code for: MGF703, MGF704 and MGF709."""

from mgpu_fix.catalogue import Signature

from .rule import Explained


class LayoutNotFound(Explained):
    """JAX finds no layout in which a kernel's threads can hold an array.

    ## What it means

    An array in a kernel is spread over the 128 threads of a warpgroup. Which thread holds which elements, its layout,
    follows from how it is loaded, computed and stored; operations on two arrays need both in the same layout.

    ## Why it happens

    - The array has a number of elements that 128 does not divide: see MGF704.
    - An operation joins arrays whose layouts differ, as an array and the sum over its rows, or a slice of one.
    - `plgpu.layout_cast` asks for a layout that what is around it cannot have.

    Warpgroup semantics (the default from JAX 0.11.0) look at the whole kernel and say only that the search failed, with
    no line: take out statements until it passes. Lane semantics name the operation, and know fewer layouts.

    ## Example

    ```python
    o_ref[...] = x_ref[...] + y_ref[...][:, None]  # both loaded in the layout that suits a plain load
    ```

    ## Use instead

    ```python
    layout = plgpu.Layout.WGMMA
    x = plgpu.load(x_ref, layout=layout, optimized=False)
    y = plgpu.load(y_ref, layout=layout.reduce(1), optimized=False)
    o_ref[...] = x + jax.lax.broadcast_in_dim(y, x.shape, [0])
    ```

    `plgpu.Layout.WGMMA` and `plgpu.Layout.TCGEN05` have rows that can be reduced and broadcast; `.reduce(axis)` is the
    layout of what is left. A slice of an array is better taken from its Ref.
    """

    code = "MGF703"
    name = "layout-not-found"
    jax = "0.10.2 to 0.12.0.1"
    by_hand = "load the arrays in one layout (plgpu.load(ref, layout=plgpu.Layout.WGMMA)), with 128 * n elements each"
    signatures = (
        Signature("ValueError", r"^Failed to infer a possible set of layouts"),
        Signature("ValueError", r"^Incompatible FragmentedArray layouts"),
        Signature("NotImplementedError", r"^No layout inference rule defined for"),
        Signature("NotImplementedError", r"^Only arrays with tiled layouts can be sliced"),
        Signature("NotImplementedError", r"^Unsupported layout: WG"),
        Signature("NotImplementedError", r"^No support for axes yet"),
        Signature("NotImplementedError", r"^Only optimized transfers to SMEM supported"),
        Signature("NotImplementedError", r"^WGStridedFragLayout\(shape="),
    )


class ElementsPerWarpgroup(Explained):
    """An array does not spread evenly over the 128 threads of a warpgroup.

    ## What it means

    Loads and stores of arrays are done by a whole warpgroup: their number of elements must be a multiple of 128.

    ## Why it happens

    A single row, or the rest of an array, is loaded. Warpgroup semantics (the default from JAX 0.11.0) say "Failed to
    infer a possible set of layouts" instead, see MGF703.

    ## Example

    ```python
    for row in range(4):
        o_ref[row] = x_ref[row] * 2  # 64 elements
    ```

    ## Use instead

    All rows at once, or numbers one by one, which has no such rule:

    ```python
    o_ref[...] = x_ref[...] * 2  # 4 * 64 elements

    @pl.loop(0, 64)
    def _(column):
        o_ref[0, column] = x_ref[0, column] * 2
    ```
    """

    code = "MGF704"
    name = "elements-per-warpgroup"
    jax = "0.10.2, and newer with Lane semantics"
    by_hand = "work on more rows at once, so that the number of elements is a multiple of 128"
    signatures = (Signature("ValueError", r"must have a number of elements that is a multiple of 128"),)


class UnsupportedPrimitive(Explained):
    """An operation that JAX has no code for in a kernel for Mosaic GPU.

    ## What it means

    A kernel is not compiled by XLA. Each of JAX's primitives needs a rule for Mosaic GPU, and many have none, or only
    for one of the two lowering semantics.

    ## Why it happens

    A function of `jnp` or `jax.nn` is made of primitives; the message names the one that is missing.

    ## Example

    ```python
    o_ref[...] = jnp.expm1(x_ref[...])
    ```

    ## Use instead

    ```python
    o_ref[...] = jnp.exp(x_ref[...]) - 1
    ```

    | missing | instead |
    |---|---|
    | `expm1`, `log1p` | `jnp.exp(x) - 1`, `jnp.log(1 + x)`, which are less exact near 0 |
    | `tan`, `sinh`, `cosh` | `jnp.sin(x) / jnp.cos(x)`, `(jnp.exp(x) - jnp.exp(-x)) / 2` |
    | `pow`, `cbrt` | `jnp.exp(y * jnp.log(x))` for positive `x`; `x * x` for whole powers |
    | `floor` | `x.astype(jnp.int32).astype(x.dtype)`, for `x` that is not negative |
    | `stop_gradient` (`jax.nn.softmax`) | `m = jnp.max(x)`, `e = jnp.exp(x - m)`, `e / jnp.sum(e)` |
    | `custom_jvp_call` (`jax.nn.relu`) up to 0.11 | `jnp.maximum(x, 0)` |
    | `is_finite` | `jnp.abs(x) < jnp.inf` |
    | `argmax`, `sort`, `cumsum`, `cumprod` | outside of the kernel; `jnp.max` and `jnp.sum` are there |
    | `dynamic_slice`, `gather`, `pad`, `rev`, `concatenate` | index the Ref: `ref[pl.ds(start, size)]` |
    | `transpose`, `dot_general` | `ref.T` of the Ref; `plgpu.wgmma` or `plgpu.tcgen05_mma` |
    | `random_bits` | random numbers as an operand |

    `erf` and `atan2` have code with Lane semantics only, floats have no `%` and `//`, and arrays of `bool` no `~` with
    Warpgroup semantics (compare the other way round).
    """

    code = "MGF709"
    name = "unsupported-primitive"
    jax = "0.10.2 to 0.12.0.1"
    by_hand = "write it with other operations; mgpu-fix explain MGF709 has a table"
    signatures = (
        Signature(
            "NotImplementedError",
            r"^Unimplemented primitive in Pallas Mosaic GPU lowering: .* user thread semantics "
            r"PrimitiveSemantics\.Warpgroup",
        ),
        Signature("NotImplementedError", r"^Resource estimation does not support"),
        Signature("TypeError", r"^unsupported operand type\(s\) for .*FragmentedArray"),
        Signature("NotImplementedError", r"^Implicit broadcast not implemented with warpgroup semantics"),
        Signature("ValueError", r"^Register bitwidth in target type must be divisible by 8, got 1"),
    )


RULES = (LayoutNotFound(), ElementsPerWarpgroup(), UnsupportedPrimitive())
