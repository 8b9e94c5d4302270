import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    # Both names, for old and new JAX.
    out_shape=jax.ShapeDtypeStruct((128,), jnp.float32),
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=[plgpu.SMEM((128,), jnp.float32)],  # one row
    scratch_shapes=[plgpu.SMEM((128,), jnp.float32)],
)
def kernel(x_ref, o_ref, s_ref):
    s_ref[...] = x_ref[...] + 1.0
    plgpu.commit_smem()
    o_ref[...] = s_ref[...]


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) + 1
