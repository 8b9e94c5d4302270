"""The body is a lambda."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

# Negated on the way through.
def kernel_body(x, o):
    o[...] = -x[...]


kernel = pl.kernel(kernel_body, out_type=jax.ShapeDtypeStruct((256,), jnp.float32), mesh=plgpu.Mesh())


def example_args():
    return (jnp.linspace(-2.0, 2.0, 256, dtype=jnp.float32),)


def reference(x):
    return -np.asarray(x)
