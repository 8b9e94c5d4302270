"""A factor and an offset are bound in front of the Refs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def affine(factor, offset, x_ref, y_ref):
    y_ref[...] = factor * x_ref[...] + offset


kernel = pl.kernel(
    partial(affine, 3.0, 0.5),
    out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    mesh=plgpu.Mesh(),
)


def example_args():
    return (jnp.arange(64 * 128, dtype=jnp.float32).reshape(64, 128) / 64,)


def reference(x):
    return 3 * np.asarray(x) + np.float32(0.5)
