import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), grid=(4,), grid_names=("row",))
def kernel(x_ref, o_ref):
    row = lax.axis_index("row")
    o_ref[row] = jnp.maximum(x_ref[row], 7.0)


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.maximum(np.asarray(x), 7)
