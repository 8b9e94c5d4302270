import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def kernel(x):
    y = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((256,), jnp.float32), compiler_params=plgpu.CompilerParams())(x)
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((256,), jnp.float32), grid=(2,),
        in_specs=[pl.BlockSpec((128,), lambda i: (i,))],
        out_specs=pl.BlockSpec((128,), lambda i: (i,)), compiler_params=plgpu.CompilerParams())(y)

def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 4
