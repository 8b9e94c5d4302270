import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def scaled(scale):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale

    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct((512,), jnp.float32), grid=(4,),
        in_specs=[pl.BlockSpec((128,), lambda i: (i,))],
        out_specs=pl.BlockSpec((128,), lambda i: (i,)),
        compiler_params=plgpu.CompilerParams(),
    )

def kernel(x):
    return scaled(2.0)(x)

def example_args():
    return (jnp.arange(512, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 2
