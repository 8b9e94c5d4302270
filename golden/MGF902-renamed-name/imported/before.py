import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jax.experimental.pallas.mosaic_gpu import GPUMesh


def _double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def kernel(x):
    mesh = GPUMesh(grid=(1,), grid_names=("g",))
    return pl.kernel(_double, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)(x)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
