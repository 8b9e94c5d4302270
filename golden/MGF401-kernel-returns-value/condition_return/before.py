"""What a condition stores is also returned, twice: under ``pl.when`` there is nothing to return it to."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32), num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    wg = lax.axis_index("wg")

    @pl.when(wg == 0)
    def _first():
        o_ref[0] = x_ref[0] * 2
        return o_ref[0]

    @pl.when(wg == 1)
    def _second():
        total = x_ref[0] + x_ref[1]
        o_ref[1] = total
        return total


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)


def reference(x):
    x = np.asarray(x)
    return np.stack([x[0] * 2, x[0] + x[1]])
