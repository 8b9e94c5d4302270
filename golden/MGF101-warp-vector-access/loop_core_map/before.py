import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _():
        warp_id = lax.axis_index("warp")

        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = x_ref[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
