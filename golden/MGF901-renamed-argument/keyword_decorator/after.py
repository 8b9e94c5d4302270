"""Fused bias and ReLU over a row of activations."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

N = 256


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((N,), jnp.float32))
def kernel(x_ref, bias_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...] + bias_ref[...], 0.0)


def example_args():
    rng = np.random.default_rng(0)
    return rng.standard_normal(N).astype(np.float32), rng.standard_normal(N).astype(np.float32)


def reference(x, bias):
    return np.maximum(x + bias, 0.0)
