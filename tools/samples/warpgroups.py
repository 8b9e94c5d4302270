"""Two warpgroups that hand over through SMEM."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    num_threads=2,
    thread_name="wg",
    scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()),
)
def kernel(x_ref, o_ref, smem, barrier):
    @pl.when(lax.axis_index("wg") == 0)
    def _():
        smem[...] = x_ref[...] * 2
        plgpu.barrier_arrive(barrier)

    @pl.when(lax.axis_index("wg") == 1)
    def _():
        plgpu.barrier_wait(barrier)
        o_ref[...] = smem[...] + 1


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2 + 1
