import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def double(x):
    return x * 2

def body(x_ref, o_ref):
    o_ref[...] = double(x_ref[...])

def run(x, block):
    grid = (x.shape[0] // block,)
    call = pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=grid,
        in_specs=[pl.BlockSpec((block,), lambda i: i)],
        out_specs=pl.BlockSpec((block,), lambda i: i),
        compiler_params=plgpu.CompilerParams(),
    )
    return call(x)

kernel = functools.partial(run, block=128)

def example_args():
    return (jnp.arange(512, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) * 2
