import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def make(n):
  @jax.jit
  @functools.partial(
      plgpu.kernel,
      out_type=jax.ShapeDtypeStruct((n,), jnp.float32),
      grid=(n // 128,),
      grid_names=("i",),
  )
  def numbered(*refs):
    i = lax.axis_index("i")
    plgpu.emit_pipeline(
      lambda _, *blocks: numbered_block(*blocks),
      grid=(),
      in_specs=[pl.BlockSpec((128,), lambda: (i,))],
      out_specs=[pl.BlockSpec((128,), lambda: (i,))],
    )(*refs)

  def numbered_block(x_ref, o_ref):
    """Adds the number of its block."""
    o_ref[...] = x_ref[...] + lax.axis_index("i").astype(jnp.float32)

  return numbered


def kernel(x):
  return make(512)(x)


def example_args():
  return (jnp.arange(512, dtype=jnp.float32),)


def reference(x):
  return np.asarray(x) + np.arange(4).repeat(128)
