"""The mean over a vector, wanted in every place of the output."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
def kernel(x_ref, mean_ref):
    mean_ref[...] = jnp.full(mean_ref.shape, jnp.sum(x_ref[...]) / x_ref.shape[0], mean_ref.dtype)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.full((128,), np.asarray(x).mean(), np.float32)
