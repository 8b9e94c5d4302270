import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=(jax.ShapeDtypeStruct((128,), jnp.float32),) * 2,
    scratch_types=(plgpu.SMEM((2, 128), jnp.float32),),
    num_threads=2,
    thread_name="wg",
)
def kernel(x_ref, o_ref, p_ref, smem):
    wg = lax.axis_index("wg")

    @pl.when(wg == 0)
    def _():
        smem[0] = x_ref[...] * 2
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem.at[0], o_ref)
        plgpu.wait_smem_to_gmem(0)

    @pl.when(wg == 1)
    def _():
        smem[1] = x_ref[...] + 1
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem.at[1], p_ref)
        plgpu.wait_smem_to_gmem(0)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
