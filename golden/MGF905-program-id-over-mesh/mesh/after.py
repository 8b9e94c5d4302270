import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


MESH = plgpu.Mesh(grid=(4,), grid_names=("row",), num_threads=2, thread_name="wg")


@functools.partial(pl.kernel, mesh=MESH, out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32))
def kernel(x_ref, o_ref):
    o_ref[lax.axis_index("row")] = x_ref[lax.axis_index("row")] * 2


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x) * 2
