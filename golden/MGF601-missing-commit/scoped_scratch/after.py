import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.bfloat16))
def kernel(x_ref, o_ref):
    def body(smem):
        smem[...] = x_ref[...] * 2
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(
            smem,
            o_ref,
        )
        plgpu.wait_smem_to_gmem(0)

    pl.run_scoped(body, plgpu.SMEM((128,), jnp.bfloat16))


def example_args():
    return (jnp.arange(128, dtype=jnp.bfloat16),)
