import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def scale_rows(x_ref, y_ref, o_ref):
    number = lax.axis_index("i") * lax.axis_size("j") + lax.axis_index("j")
    o_ref[...] = x_ref[...] * y_ref[...] + number.astype(jnp.float32)


def kernel(x, y):
    m, n = x.shape
    rows, columns = 64, 128

    def scale_rows_pipeline(*refs):
        i = lax.axis_index("i")
        j = lax.axis_index("j")
        plgpu.emit_pipeline(
            lambda _, *blocks: scale_rows(*blocks),
            grid=(),
            in_specs=[
                pl.BlockSpec((rows, columns), lambda: (i, j)),  # a tile
                pl.BlockSpec((rows, columns), lambda: (0, j)),  # the first row of tiles
            ],
            out_specs=[pl.BlockSpec((rows, columns), lambda: (i, j))],
        )(*refs)

    return plgpu.kernel(
        scale_rows_pipeline,
        grid=(m // rows, n // columns),
        grid_names=("i", "j"),
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, y)


def example_args():
    x = jnp.arange(128 * 256, dtype=jnp.float32).reshape(128, 256) / 1000
    return x, x + 1


def reference(x, y):
    x, y = np.asarray(x), np.asarray(y)
    number = np.arange(2).repeat(64)[:, None] * 2 + np.arange(2).repeat(128)
    return x * np.concatenate([y[:64], y[:64]]) + number
