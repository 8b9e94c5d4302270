"""The two outputs come out of a helper, which is called once."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def split(x):
    positive = jnp.maximum(x, 0.0)
    return positive, x - positive


@pl.kernel(out_type=(jax.ShapeDtypeStruct((128,), jnp.float32),) * 2, mesh=plgpu.Mesh())
def kernel(x_ref, pos_ref, neg_ref):
    pos_ref[...], neg_ref[...] = split(x_ref[...])


def example_args():
    return (jnp.linspace(-1.0, 1.0, 128, dtype=jnp.float32),)


def reference(x):
    x = np.asarray(x)
    return np.maximum(x, 0), np.minimum(x, 0)
