"""A lambda in a function, with a default argument and a comment."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

LEAK = 0.125


def leaky_relu(length):
    shape = jax.ShapeDtypeStruct((length,), jnp.float32)

    def leaky_relu_body(x, o, leak=LEAK):
        o[...] = jnp.maximum(x[...], x[...] * leak)

    return pl.kernel(
        leaky_relu_body,  # no branch needed
        out_type=shape,
        mesh=plgpu.Mesh(),
    )


kernel = leaky_relu(256)


def example_args():
    return (jnp.linspace(-2.0, 2.0, 256, dtype=jnp.float32),)


def reference(x):
    x = np.asarray(x)
    return np.maximum(x, x * np.float32(0.125))
