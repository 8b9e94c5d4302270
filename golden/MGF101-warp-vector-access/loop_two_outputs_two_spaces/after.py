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
      @pl.loop(0, 128)
      def _(i):
        o_ref[i] = jnp.maximum(
          x_ref[i],  # keep the large ones
          jnp.float32(0),
        )
      @pl.loop(0, 32)
      def _(i):
        head_ref[i] = x_ref[i].astype(jnp.bfloat16)


def example_args():
  return (jnp.linspace(-1, 1, 128, dtype=jnp.float32),)
