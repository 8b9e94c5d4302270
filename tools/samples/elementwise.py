"""Array operations on GMEM."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    o_ref[...] = jnp.exp(x_ref[...]) + 1


def example_args():
    return (jnp.linspace(-1, 1, 128, dtype=jnp.float32),)


def reference(x):
    return np.exp(np.asarray(x, np.float64)) + 1
