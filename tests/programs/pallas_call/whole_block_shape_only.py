import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, w_ref, o_ref):
    o_ref[...] = x_ref[...] * w_ref[...]

def kernel(x, w):
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[pl.BlockSpec((128,), lambda i: (i,)), pl.BlockSpec((128,))],
        out_specs=pl.BlockSpec(block_shape=(128,), index_map=lambda i: (i,)),
        compiler_params=plgpu.CompilerParams(),
    )(x, w)

def example_args():
    return jnp.arange(512, dtype=jnp.float32), jnp.arange(128, dtype=jnp.float32) + 1

def reference(x, w):
    return (np.asarray(x).reshape(4, 128) * np.asarray(w)).reshape(-1)
