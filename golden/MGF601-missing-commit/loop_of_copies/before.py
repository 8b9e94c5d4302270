import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
  plgpu.kernel,
  out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32),
  scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
  @pl.loop(0, 4)
  def _(i):
    smem[...] = x_ref[i] + 1.0
    plgpu.copy_smem_to_gmem(smem, o_ref.at[i])
    plgpu.wait_smem_to_gmem(0)


def example_args():
  return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)
