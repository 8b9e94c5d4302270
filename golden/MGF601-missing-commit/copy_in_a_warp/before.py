import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...] * 2

    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_smem_to_gmem(smem, o_ref)
            plgpu.wait_smem_to_gmem(0)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
