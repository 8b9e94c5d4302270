import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def scale_rows(x_ref, y_ref, o_ref):
    number = pl.program_id(0) * pl.num_programs(1) + pl.program_id(1)
    o_ref[...] = x_ref[...] * y_ref[...] + number.astype(jnp.float32)


def kernel(x, y):
    m, n = x.shape
    rows, columns = 64, 128
    return pl.pallas_call(
        scale_rows,
        grid=(m // rows, n // columns),
        in_specs=[
            pl.BlockSpec((rows, columns), lambda i, j: (i, j)),  # a tile
            pl.BlockSpec((rows, columns), lambda _, c: (0, c)),  # the first row of tiles
        ],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)


def example_args():
    x = jnp.arange(128 * 256, dtype=jnp.float32).reshape(128, 256) / 1000
    return x, x + 1


def reference(x, y):
    x, y = np.asarray(x), np.asarray(y)
    number = np.arange(2).repeat(64)[:, None] * 2 + np.arange(2).repeat(128)
    return x * np.concatenate([y[:64], y[:64]]) + number
