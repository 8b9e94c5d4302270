import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

def kernel(x):
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=x.shape[:1],
        in_specs=[pl.BlockSpec((None, 128), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((None, 128), lambda i: (i, 0)),
        compiler_params=plgpu.CompilerParams(),
    )(x)

def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)

def reference(x):
    return np.asarray(x) + 1
