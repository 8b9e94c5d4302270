import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), grid=(4,), grid_names=("row",))
def kernel(x_ref, o_ref):
    row = jax.lax.axis_index("row")
    @pl.when(row > 1)
    def _():
        o_ref[row] = x_ref[row] * 2
    @pl.when(row <= 1)
    def _():
        o_ref[row] = x_ref[row]


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x) * np.array([[1], [1], [2], [2]])
