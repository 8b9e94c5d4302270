import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

MESH = plgpu.Mesh(grid=(2,), grid_names=("half",))


@pl.kernel(
    mesh=MESH,
    out_shape=jax.ShapeDtypeStruct((256,), jnp.float32),
    scratch_shapes=(),
)
def kernel(x_ref, o_ref):
    half = pl.ds(lax.axis_index("half") * 128, 128)
    o_ref[half] = x_ref[half] + x_ref[half]


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
