"""Axes in a constant, and the thread axis in another."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


COMPUTE = "compute"
AXES = ("block", COMPUTE)
MESH = plgpu.Mesh(grid=(1,), grid_names=("block",), num_threads=2, thread_name=COMPUTE)


def double(x_ref, o_ref):
  def body(smem):
    @pl.when(lax.axis_index(COMPUTE) == 0)
    def _():
      smem[...] = x_ref[...]
      o_ref[...] = smem[...] * 2

  pl.run_scoped(body,
                plgpu.SMEM((128,), jnp.float32),
                collective_axes=COMPUTE)


kernel = pl.kernel(double, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=MESH)
print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
