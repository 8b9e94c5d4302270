"""Axes bound by functools.partial, in a tuple of one."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


mesh = plgpu.Mesh(grid=(1,), grid_names=("block",), num_threads=2, thread_name="wg")


@pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=mesh)
def kernel(x_ref, o_ref):
    scope = functools.partial(pl.run_scoped, collective_axes=("block",))

    def body(smem, barrier):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)

        plgpu.barrier_wait(barrier)

        @pl.when(lax.axis_index("wg") == 1)
        def _():
            o_ref[...] = smem[...] * 3

    scope(body, plgpu.SMEM((128,), jnp.float32), plgpu.Barrier())


print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
