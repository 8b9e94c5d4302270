"""Accumulators are never shared: one scope overrides what both get by functools.partial."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    num_threads=2,
    thread_name="wg",
)
def kernel(x_ref, o_ref):
    rows = pl.ds(lax.axis_index("wg") * 64, 64)

    scope = functools.partial(pl.run_scoped, collective_axes="wg")

    def outer(smem):
        def body(acc):
            smem[rows] = acc[...]
            o_ref[rows] = smem[rows] + x_ref[rows]

        scope(body, plgpu.ACC((64, 128), jnp.float32))

    scope(outer, plgpu.SMEM((128, 128), jnp.float32))


print(kernel(jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128))[::64, :4])
