"""Scratch memory comes after the output, so the last parameter is not the one to store to."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=[plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()],
)
def kernel(x_gmem, y_gmem, x_smem, barrier):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
    plgpu.barrier_wait(barrier)
    x = x_smem[...]
    return x * x


def example_args():
    return (jnp.arange(128, dtype=jnp.float32) / 16,)


def reference(x):
    x = np.asarray(x)
    return x * x
