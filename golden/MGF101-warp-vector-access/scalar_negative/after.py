import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((4,), jnp.int32),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        x = x_ref[w]
        o_ref[w] = (0 - x) * 2


def example_args():
    return (jnp.arange(4, dtype=jnp.int32),)


def reference(x):
    x = np.asarray(x)
    return -x * 2
