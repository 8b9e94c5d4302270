import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=(jax.ShapeDtypeStruct((4,), jnp.int32), jax.ShapeDtypeStruct((4,), jnp.uint8)),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
)
def kernel(x_ref, y_ref, o_ref, p_ref):
    @plgpu.warp_map
    def _(w):
        x = x_ref[w]
        o_ref[w] = ~x & 6 | x - ~x  # of all bits
        p_ref[w] = jnp.invert(y_ref[w])


def example_args():
    return jnp.arange(4, dtype=jnp.int32), jnp.arange(4, dtype=jnp.uint8)


def reference(x, y):
    x, y = np.asarray(x), np.asarray(y)
    return ~x & 6 | x - ~x, ~y
