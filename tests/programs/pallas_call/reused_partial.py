import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

mosaic_call = functools.partial(pl.pallas_call, compiler_params=plgpu.CompilerParams())

def kernel(x):
    return mosaic_call(body, out_shape=jax.ShapeDtypeStruct((256,), jnp.float32))(x)

def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 2
