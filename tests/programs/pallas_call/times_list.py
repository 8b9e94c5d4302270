import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(*refs):
    *ins, o_ref = refs
    o_ref[...] = functools.reduce(lambda a, b: a + b, [r[...] for r in ins])

def kernel(x, y, z):
    return pl.pallas_call(
        body, grid=(4,), in_specs=[pl.BlockSpec((128,), lambda i: i)] * 3, out_specs=pl.BlockSpec((128,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams(),
    )(x, y, z)

def example_args():
    x = jnp.arange(512, dtype=jnp.float32)
    return x, x * x, x + 3

def reference(x, y, z):
    return np.asarray(x) + np.asarray(y) + np.asarray(z)
