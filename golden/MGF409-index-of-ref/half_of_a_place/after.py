import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), grid=(4,), grid_names=("row",))
def kernel(x_ref, o_ref):
    row = lax.axis_index("row")
    source = row // 2  # two rows from one
    o_ref[row] = x_ref[source] * 2


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x)[[0, 0, 1, 1]] * 2
