"""A kernel with one thread: the argument goes, with its line."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32),
    grid=(4,),
    grid_names=("row",),
)
def kernel(x_ref, o_ref):
    row = lax.axis_index("row")

    @functools.partial(
        pl.run_scoped,
        smem=plgpu.SMEM((128,), jnp.float32),  # one row
    )
    def _(smem):
        smem[...] = x_ref[row]
        o_ref[row] = smem[...] * smem[...]


print(kernel(jnp.arange(512, dtype=jnp.float32).reshape(4, 128))[:, :4])
