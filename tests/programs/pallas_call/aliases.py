import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def kernel(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((256,), jnp.float32), input_output_aliases={0: 0}, compiler_params=plgpu.CompilerParams())(x)

def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 2
