import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


NAMES = ("row", "half")


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), grid=(2, 2), grid_names=NAMES)
def kernel(x_ref, o_ref):
    i = lax.axis_index("row") * lax.axis_size("half") + lax.axis_index("half")  # which row
    o_ref[i] = x_ref[i] * 2


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x) * 2
