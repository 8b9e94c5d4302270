import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32),
    grid=(2,),
    grid_names=("row",),
)
def kernel(x_ref, o_ref):
    row = lax.axis_index("row")
    o_ref[row] = x_ref[row] * 2


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)


def reference(x):
    return np.asarray(x) * 2
