import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, y_ref, o_ref):
    i, j = pl.program_id(0), pl.program_id(1)
    o_ref[...] = x_ref[...] * y_ref[...] + (i * 10 + j).astype(jnp.float32)

def kernel(x, y):
    m, n = x.shape
    bm, bn = 64, 128
    return pl.pallas_call(
        body,
        grid=(m // bm, n // bn),
        in_specs=[
            pl.BlockSpec((bm, bn), lambda i, j: (i, j)),  # left
            pl.BlockSpec((bm, bn), lambda r, c: (r, c)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)

def example_args():
    x = jnp.arange(128 * 256, dtype=jnp.float32).reshape(128, 256) / 1000
    return x, x + 1

def reference(x, y):
    x, y = np.asarray(x), np.asarray(y)
    add = (np.arange(128)[:, None] // 64) * 10 + np.arange(256)[None] // 128
    return x * y + add
