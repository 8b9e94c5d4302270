import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        mine = pl.ds(warp_id * 32, 32)  # a quarter for each warp
        o_ref[mine] = x_ref[mine] + x_ref[mine]


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
