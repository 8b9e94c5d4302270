import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    scratch_types=[plgpu.SMEM((2, 64, 128), jnp.float32), plgpu.Barrier()],
)
def kernel(x_ref, o_ref, buffers, barrier):
    plgpu.copy_gmem_to_smem(x_ref, buffers.at[0], barrier)
    plgpu.barrier_wait(barrier)
    buffers[0] = buffers[0] * 2
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(src=buffers.at[0], dst=o_ref)
    plgpu.wait_smem_to_gmem(0)


def example_args():
    return (jnp.arange(64 * 128, dtype=jnp.float32).reshape(64, 128),)


def reference(x):
    return np.asarray(x) * 2
