import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2.0

kernel = pl.pallas_call(
    body,
    out_shape=jax.ShapeDtypeStruct((512,), jnp.float32),
    grid=4,
    in_specs=[pl.BlockSpec((128,), lambda i: (i,))],
    out_specs=pl.BlockSpec((128,), lambda i: (i,)),
    compiler_params=plgpu.CompilerParams(dimension_semantics=("sequential",), max_concurrent_steps=2),
)

def example_args():
    return (jnp.arange(512, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 2
