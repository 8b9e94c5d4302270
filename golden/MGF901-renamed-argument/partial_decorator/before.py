import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

ROWS, COLS = 4, 128


@functools.partial(
    plgpu.kernel,
    out_shape=jax.ShapeDtypeStruct((ROWS, COLS), jnp.float32),
    scratch_shapes=[plgpu.SMEM((COLS,), jnp.float32)],
    grid=(ROWS,),
    grid_names=("row",),
)
def kernel(x_ref, y_ref, row_smem):
    row = lax.axis_index("row")
    row_smem[...] = x_ref[row] * 0.5
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(row_smem, y_ref.at[row])
    plgpu.wait_smem_to_gmem(0)


def example_args():
    return (jnp.arange(ROWS * COLS, dtype=jnp.float32).reshape(ROWS, COLS),)


def reference(x):
    return np.asarray(x) * 0.5
