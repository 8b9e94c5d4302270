import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
  plgpu.kernel,
  out_type=jax.ShapeDtypeStruct((128,), jnp.bfloat16),
  scratch_types=(plgpu.SMEM((128,), jnp.bfloat16),),
)
def kernel(x_ref, o_ref, smem):
  smem[...] = jnp.maximum(
    x_ref[...],
    1.0,  # at least
  )
  o_ref[...] = smem[...]


def example_args():
  return (jnp.arange(128, dtype=jnp.float32),)
