"""Kernels that all run with the same two warpgroups."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def warpgroup_kernel(body=None, **options):
    """`plgpu.kernel` with two warpgroups, unless `options` say otherwise."""
    options.setdefault("num_threads", 2)
    options.setdefault("thread_name", "wg")
    if body is None:
        return lambda body: plgpu.kernel(body, **options)
    return plgpu.kernel(body, **options)


@warpgroup_kernel(out_shape=jax.ShapeDtypeStruct((256,), jnp.float32))
def kernel(x_ref, o_ref):
    half = pl.ds(lax.axis_index("wg") * 128, 128)
    o_ref[half] = x_ref[half] - 4.0


def shifted(x, by):
    def body(x_ref, o_ref):
        half = pl.ds(lax.axis_index("wg") * 128, 128)
        o_ref[half] = x_ref[half] + by

    return warpgroup_kernel(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) - 4
