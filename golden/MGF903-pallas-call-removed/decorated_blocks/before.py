import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def make(n):
  @jax.jit
  @functools.partial(
      pl.pallas_call,
      out_shape=jax.ShapeDtypeStruct((n,), jnp.float32),
      grid=(n // 128,),
      in_specs=[pl.BlockSpec((128,), lambda i: (i,))],
      out_specs=pl.BlockSpec((128,), lambda i: (i,)),
      compiler_params=plgpu.CompilerParams(),
  )
  def numbered(x_ref, o_ref):
    """Adds the number of its block."""
    o_ref[...] = x_ref[...] + pl.program_id(0).astype(jnp.float32)

  return numbered


def kernel(x):
  return make(512)(x)


def example_args():
  return (jnp.arange(512, dtype=jnp.float32),)


def reference(x):
  return np.asarray(x) + np.arange(4).repeat(128)
