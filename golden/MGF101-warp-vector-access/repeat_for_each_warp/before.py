import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        o_ref[warp_id] = jnp.exp(x_ref[warp_id])


def example_args():
    return (jnp.linspace(0, 1, 512, dtype=jnp.float32).reshape(4, 128),)
