import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), grid=(4,), grid_names=("row",))
def kernel(x_ref, o_ref):
    row = jax.lax.axis_index("row")
    o_ref[row] = jnp.exp(x_ref[row])


def example_args():
    return (jnp.linspace(-1, 1, 512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.exp(np.asarray(x))
