"""Warpgroups that hand rows to each other, ordered by a barrier: sharing was meant."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32),
    num_threads=2,
    thread_name="wg",
    scratch_types=[plgpu.Barrier(num_arrivals=2)],
)
def kernel(x_ref, o_ref, barrier):
    wg = lax.axis_index("wg")

    def body(rows):
        rows[wg] = x_ref[wg]
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)
        o_ref[wg] = rows[1 - wg]

    pl.run_scoped(body, plgpu.SMEM((2, 128), jnp.float32), collective_axes="wg")


print(kernel(jnp.arange(256, dtype=jnp.float32).reshape(2, 128))[:, :4])
