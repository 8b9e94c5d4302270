import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


SCALE = 3.0


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    i = SCALE

    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            # one element at a time would do
            @pl.loop(0, 128)
            def _(j):
                x = x_ref[j] * i
                first = x_ref[0]
                x += first
                y = jnp.where(x > 3.0, x, x * -1)
                o_ref[j] = jnp.minimum(y * y, 100.0)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
