import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


from jax.experimental.pallas.mosaic_gpu import copy_smem_to_gmem, wait_smem_to_gmem


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...] * 2
    copy_smem_to_gmem(smem, o_ref)
    wait_smem_to_gmem(0)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
