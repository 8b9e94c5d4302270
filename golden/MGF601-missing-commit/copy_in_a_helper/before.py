import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


def write_out(smem, gmem):
    plgpu.copy_smem_to_gmem(smem, gmem)
    plgpu.wait_smem_to_gmem(0)


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...] * 2
    write_out(smem, o_ref)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
