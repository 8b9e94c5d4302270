import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32),
    scratch_types=[plgpu.SMEM((2, 128), jnp.float32), plgpu.Barrier(num_barriers=2)],
)
def kernel(x_ref, o_ref, smem, loaded):
    plgpu.copy_gmem_to_smem(x_ref.at[0], smem.at[0], loaded.at[0])
    plgpu.copy_gmem_to_smem(x_ref.at[1], smem.at[1])  # the second
    o_ref[0] = x_ref[0] * 2
    plgpu.barrier_wait(loaded.at[1])
    o_ref[1] = smem[1] * 2
    plgpu.barrier_wait(loaded.at[0])


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)


def reference(x):
    return np.asarray(x) * 2
