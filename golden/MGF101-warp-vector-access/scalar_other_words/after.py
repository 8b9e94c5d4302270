import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((4,), jnp.float32),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        x = x_ref[w]
        o_ref[w] = (x * -1) * 2 + (x * -1)  # twice


def example_args():
    return (jnp.arange(4, dtype=jnp.float32),)
