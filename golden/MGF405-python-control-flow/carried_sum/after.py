import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), grid=(4,), grid_names=("row",))
def kernel(x_ref, o_ref):
    row = lax.axis_index("row")
    total = x_ref[row]
    def step(other, total):
        total = total + x_ref[other]  # all rows so far
        return total
    total = lax.fori_loop(0, row, step, total)
    o_ref[row] = total


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.cumsum(np.asarray(x), axis=0)
