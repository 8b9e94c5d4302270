"""`plgpu.wgmma` on Hopper, its operands copied by TMA."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TRANSFORMS = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    scratch_types=(
        plgpu.SMEM((64, 128), jnp.float16, transforms=TRANSFORMS),
        plgpu.SMEM((128, 128), jnp.float16, transforms=TRANSFORMS),
        plgpu.Barrier(num_arrivals=2),
    ),
)
def kernel(a_ref, b_ref, o_ref, a_smem, b_smem, barrier):
    plgpu.copy_gmem_to_smem(a_ref, a_smem, barrier)
    plgpu.copy_gmem_to_smem(b_ref, b_smem, barrier)
    plgpu.barrier_wait(barrier)

    def multiply(acc):
        plgpu.wgmma(acc, a_smem, b_smem)
        return acc[...]

    o_ref[...] = pl.run_scoped(multiply, plgpu.ACC((64, 128), jnp.float32))


def example_args():
    a = (np.arange(64 * 128).reshape(64, 128) % 7 - 3).astype(np.float16)
    b = (np.arange(128 * 128).reshape(128, 128) % 5 - 2).astype(np.float16)
    return jnp.asarray(a), jnp.asarray(b)


def reference(a, b):
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32)
