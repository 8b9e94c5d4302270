"""A warp-level region."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((4, 32), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.loop(0, 32)
        def _(i):
            o_ref[warp_id, i] = x_ref[warp_id, i] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32).reshape(4, 32),)


def reference(x):
    return np.asarray(x) * 2
