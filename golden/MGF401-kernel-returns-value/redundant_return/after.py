"""The value is stored, and then returned as well."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32), mesh=plgpu.Mesh())
def kernel(x_ref, w_ref, o_ref):
    weighted = x_ref[...] * w_ref[...]
    o_ref[...] = weighted

    # for debugging


def example_args():
    x = jnp.arange(512, dtype=jnp.float32).reshape(4, 128)
    return x, x / 512


def reference(x, w):
    return np.asarray(x) * np.asarray(w)
