import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((2, 4, 16), jnp.int32))
def kernel(x_ref, bias_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 3)
        def _():
            @pl.loop(0, 2)
            def _(i):
                @pl.loop(0, 2)
                def _(j):
                    @pl.loop(0, 16)
                    def _(k):
                        o_ref[i, j, k] = x_ref[i, 2 + j, k] + bias_ref[k]
            @pl.loop(0, 2)
            def _(i):
                @pl.loop(0, 16)
                def _(j):
                    o_ref[0, 2 + i, j] = x_ref[0, i, j]
            @pl.loop(0, 2)
            def _(i):
                @pl.loop(0, 16)
                def _(j):
                    o_ref[1, 2 + i, j] = x_ref[1, i, j]


def example_args():
    return (jnp.arange(128, dtype=jnp.int32).reshape(2, 4, 16), jnp.arange(16, dtype=jnp.int32))
