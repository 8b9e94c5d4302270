"""The body has parameters for its inputs and its scratch memory, and none for its output."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


def reverse_blend(x_gmem, y_gmem, *, staged):
    staged[...] = x_gmem[...]
    return staged[...] * 0.25 + y_gmem[...] * 0.75


kernel = plgpu.kernel(
    reverse_blend,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=dict(staged=plgpu.SMEM((128,), jnp.float32)),
)


def example_args():
    return jnp.arange(128, dtype=jnp.float32), jnp.ones(128, jnp.float32)


def reference(x, y):
    return np.asarray(x) * np.float32(0.25) + np.asarray(y) * np.float32(0.75)
