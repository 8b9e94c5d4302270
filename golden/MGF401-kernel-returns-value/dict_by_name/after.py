"""A dict is returned, and each of its keys names one output."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(
    out_type=(jax.ShapeDtypeStruct((128,), jnp.float32), jax.ShapeDtypeStruct((128,), jnp.int32)),
    mesh=plgpu.Mesh(),
)
def kernel(x_ref, rounded_ref, whole_ref):
    x = x_ref[...]
    whole = x.astype(jnp.int32)
    whole_ref[...] = whole
    rounded_ref[...] = whole.astype(jnp.float32)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32) + 0.25,)


def reference(x):
    whole = np.asarray(x).astype(np.int32)
    return whole.astype(np.float32), whole
