"""``plgpu.kernel`` raises nothing: the sum is dropped and the output never written."""

import jax
import jax.experimental.pallas.mosaic_gpu as mgpu
import jax.numpy as jnp
import numpy as np


def add(a_gmem, b_gmem, o_gmem):
    """Sum of two vectors."""
    o_gmem[...] = (
        a_gmem[...]  # left
        + b_gmem[...]  # right
    )


def kernel(a, b):
    call = mgpu.kernel(add, out_type=jax.ShapeDtypeStruct(a.shape, a.dtype))
    return call(a, b)


def example_args():
    return jnp.arange(128, dtype=jnp.float32), jnp.arange(128, dtype=jnp.float32)[::-1]


def reference(a, b):
    return np.asarray(a) + np.asarray(b)
