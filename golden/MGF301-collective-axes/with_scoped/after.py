"""Axes given to pl.with_scoped."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    @pl.with_scoped(
        plgpu.SMEM((128,), jnp.float32),  # staging
        collective_axes="wg",  # shared
    )
    def add_one(source, smem):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            smem[...] = source[...]
            o_ref[...] = smem[...] + 1

    add_one(x_ref)


print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
