"""The body takes its Refs as ``*refs`` and unpacks them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def add_all(*refs):
    a_ref, b_ref, c_ref, total_ref = refs
    total_ref[...] = sum((r[...] for r in (b_ref, c_ref)), start=a_ref[...])


kernel = pl.kernel(add_all, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())


def example_args():
    x = jnp.arange(128, dtype=jnp.float32)
    return x, x * 2, x * 4


def reference(a, b, c):
    return np.asarray(a) + np.asarray(b) + np.asarray(c)
