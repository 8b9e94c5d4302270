import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def kernel(x):
    call = pl.pallas_call(
        body, jax.ShapeDtypeStruct((256,), jnp.float32),
        grid=(2,),
        in_specs=[pl.BlockSpec((128,), lambda i: (i,))],
        out_specs=pl.BlockSpec((128,), lambda i: (i,)),
        compiler_params=plgpu.CompilerParams(),
    )
    return jax.vmap(call)(x.reshape(2, 256))

def example_args():
    return (jnp.arange(512, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x).reshape(2, 256) * 2
