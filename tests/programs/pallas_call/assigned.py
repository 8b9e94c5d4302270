import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

f = pl.pallas_call(add_one, jax.ShapeDtypeStruct((256,), jnp.float32), compiler_params=plgpu.CompilerParams(approx_math=True), name="add_one_to_all")

def kernel(x):
    return f(x)

def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) + 1
