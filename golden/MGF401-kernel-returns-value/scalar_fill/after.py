"""A number, wanted in every place of the output."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
def kernel(x_ref, weight_ref):
    weight_ref[...] = jnp.full(weight_ref.shape, -0.5, weight_ref.dtype)  # the same for all


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.full((128,), -0.5, np.float32)
