"""One warpgroup is to store what both have added up, but returns it out of ``pl.when``."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    num_threads=2,
    thread_name="wg",
    scratch_types=[plgpu.SMEM((2, 128), jnp.float32), plgpu.Barrier(num_arrivals=2)],
)
def kernel(x_ref, o_ref, total, done):
    wg = lax.axis_index("wg")
    total[wg] = x_ref[wg] * 2
    plgpu.barrier_arrive(done)
    plgpu.barrier_wait(done)

    @pl.when(wg == 0)
    def _store():
        # Both halves are there now.
        o_ref[...] = total[0] + total[1]


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)


def reference(x):
    return np.asarray(x).sum(0) * 2
