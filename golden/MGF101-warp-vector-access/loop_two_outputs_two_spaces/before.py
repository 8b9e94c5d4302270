import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
  plgpu.kernel,
  out_type=(
    jax.ShapeDtypeStruct((128,), jnp.float32),
    jax.ShapeDtypeStruct((32,), jnp.bfloat16),
  ),
)
def kernel(x_ref, o_ref, head_ref):
  @plgpu.warp_map
  def _(warp_id):
    @pl.when(warp_id == 0)
    def _():
      o_ref[...] = jnp.maximum(
        x_ref[...],  # keep the large ones
        jnp.zeros_like(x_ref),
      )
      head_ref[...] = x_ref[:32].astype(jnp.bfloat16)


def example_args():
  return (jnp.linspace(-1, 1, 128, dtype=jnp.float32),)
