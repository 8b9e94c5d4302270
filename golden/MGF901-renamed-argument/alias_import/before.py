import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct as Shape
from jax.experimental.pallas.mosaic_gpu import SMEM
from jax.experimental.pallas.mosaic_gpu import commit_smem
from jax.experimental.pallas.mosaic_gpu import kernel as mk


def _negate(x_ref, o_ref, scratch):
    scratch[...] = 0.0 - x_ref[...]
    commit_smem()
    o_ref[...] = scratch[...]


kernel = mk(_negate, scratch_shapes=[SMEM((128,), jnp.float32)], out_shape=Shape((128,), jnp.float32))


def example_args():
    return (np.linspace(0.0, 5.0, 128, dtype=np.float32),)


def reference(x):
    return -x
