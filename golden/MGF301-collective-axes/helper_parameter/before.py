"""Axes that a helper takes as a parameter: the caller passes others."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def staged(x_ref, o_ref, scale, axes="block"):
    def body(smem):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            smem[...] = x_ref[...] * scale
            o_ref[...] = smem[...]

    pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), collective_axes=axes)


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    staged(x_ref, o_ref, 2, axes=("block", "wg"))


print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
