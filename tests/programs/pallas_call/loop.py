import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def kernel(x):
    for n in (128, 256):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] + (n / 128) * x_ref[...] * (1.0 if n == 128 else 0.0)

        x = pl.pallas_call(
            body, out_shape=jax.ShapeDtypeStruct((512,), jnp.float32),
            grid=(512 // n,),
            in_specs=[pl.BlockSpec((n,), lambda i: (i,))],
            out_specs=pl.BlockSpec((n,), lambda i: (i,)),
            compiler_params=plgpu.CompilerParams(),
        )(x)
    return x

def example_args():
    return (jnp.arange(512, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 2
