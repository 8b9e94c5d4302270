import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def kernel(x):
    return plgpu.kernel(
        double,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
