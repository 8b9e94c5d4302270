import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref):
    i = pl.program_id(0)
    o_ref[i] = x_ref[i] * 2

def kernel(x):
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(4,), compiler_params=plgpu.CompilerParams(),
    )(x)

def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)

def reference(x):
    return np.asarray(x) * 2
