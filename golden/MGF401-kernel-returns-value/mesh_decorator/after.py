"""An affine map, declared with a decorator."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32), mesh=plgpu.Mesh())
def kernel(x_ref, out_ref):
    x = x_ref[...]
    # Celsius to Fahrenheit.
    out_ref[...] = x * 1.8 + 32.0  # exact for whole degrees


def example_args():
    return (jnp.linspace(-40.0, 120.0, 256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * np.float32(1.8) + np.float32(32.0)
