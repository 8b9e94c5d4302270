import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    # before
    @plgpu.warp_map  # one warp is enough
    def _(warp_id):
        # the first
        @pl.when(warp_id == 0)
        def _():  # no other
            o_ref[...] = jnp.exp(  # vector
                x_ref[...],
            )

    # after


def example_args():
    return (jnp.linspace(0, 1, 128, dtype=jnp.float32),)
