"""`pl.pallas_call` over blocks, for Mosaic GPU."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def kernel(x):
    spec = pl.BlockSpec((128,), lambda i: (i,))
    out = jax.ShapeDtypeStruct((256,), jnp.float32)
    parameters = plgpu.CompilerParams()
    return pl.pallas_call(
        double, out_shape=out, grid=(2,), in_specs=[spec], out_specs=spec, compiler_params=parameters
    )(x)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
