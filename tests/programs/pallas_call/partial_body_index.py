import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(scale, x_ref, o_ref, *, shift):
    o_ref[...] = x_ref[...] * scale + shift + pl.program_id(0).astype(jnp.float32)

def kernel(x):
    return pl.pallas_call(
        functools.partial(body, 3.0, shift=2.0), grid=(4,),
        in_specs=[pl.BlockSpec((128,), lambda i: (i,))], out_specs=pl.BlockSpec((128,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams(dimension_semantics=["sequential"]),
    )(x)

def example_args():
    return (jnp.arange(512, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 3 + 2 + np.arange(512) // 128
