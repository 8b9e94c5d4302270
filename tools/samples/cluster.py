"""Blocks of a cluster."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel, out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32), cluster=(2,), cluster_names=("block",)
)
def kernel(x_ref, o_ref):
    block = lax.axis_index("block")
    o_ref[block] = x_ref[block] * 2


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)


def reference(x):
    return np.asarray(x) * 2
