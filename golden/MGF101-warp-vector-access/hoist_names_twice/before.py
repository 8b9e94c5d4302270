import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=(jax.ShapeDtypeStruct((128,), jnp.float32),) * 2)
def kernel(x_ref, o_ref, p_ref):
    y = x_ref[...]

    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            y = jnp.exp(x_ref[...])
            z = y + 1.0
            o_ref[...] = z

    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            z = jnp.tanh(x_ref[...])
            p_ref[...] = z

    o_ref[...] += y


def example_args():
    return (jnp.linspace(0, 1, 128, dtype=jnp.float32),)
