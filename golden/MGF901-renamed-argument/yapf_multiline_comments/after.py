# Copyright 2025 The Authors.
import functools

import jax
from jax import numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import numpy as np


def make_kernel(m,
                n, *,
                block=128):  # columns a CTA works on
  assert n % block == 0

  def body(x_gmem, out_gmem,
           x_smem, barrier):
    tile = lax.axis_index('n')
    columns = pl.ds(tile * block, block)
    plgpu.copy_gmem_to_smem(x_gmem.at[:, columns], x_smem, barrier)
    plgpu.barrier_wait(barrier)
    out_gmem[:, columns] = x_smem[...] * 1.5

  f = plgpu.kernel(body,
                   # The result is as large as the operand.
                   out_type = jax.ShapeDtypeStruct(
                       (m, n), jnp.float32),
                   grid=(n // block,), grid_names=('n',),
                   scratch_types=[  # per CTA
                       plgpu.SMEM((m, block), jnp.float32),  # x
                       plgpu.Barrier(),
                   ],)  # no threads: one warpgroup
  return f


kernel = make_kernel(64, 256)


def example_args():
  return (jnp.arange(64 * 256, dtype=jnp.float32).reshape(64, 256) / 1024,)


def reference(x):
  return np.asarray(x) * 1.5
