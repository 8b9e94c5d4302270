"""Outputs by name: ``out_type`` is a dict, and so is what the body returns. ``plgpu.kernel`` drops it silently."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

ROW = jax.ShapeDtypeStruct((128,), jnp.float32)


@functools.partial(plgpu.kernel, out_type={"total": ROW, "difference": ROW})
def kernel(a_ref, b_ref, out):
    a = a_ref[...]
    b = b_ref[...]
    return {
        "total": a + b,
        "difference": a - b,
    }


def example_args():
    return jnp.arange(128, dtype=jnp.float32), jnp.full((128,), 0.5, jnp.float32)


def reference(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return {"total": a + b, "difference": a - b}
