"""Three outputs, returned as a list that goes over several lines."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

OUT = jax.ShapeDtypeStruct((128,), jnp.float32)


def powers(x, first, second, third):
    value = x[...]
    return [
        value,
        value * value,
        value
        * value
        * value,
    ]


def kernel(x):
    return pl.kernel(powers, out_type=[OUT] * 3, mesh=plgpu.Mesh())(x)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32) / 32,)


def reference(x):
    x = np.asarray(x)
    return [x, x * x, x * x * x]
