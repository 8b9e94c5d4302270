import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((512, 16), jnp.float32),
    scratch_types=[plgpu.SMEM((512, 16), jnp.float32), plgpu.Barrier(num_arrivals=2)],
)
def kernel(x_ref, o_ref, x_smem, loaded):
    plgpu.copy_gmem_to_smem(x_ref.at[0:256], x_smem.at[0:256], loaded)
    plgpu.copy_gmem_to_smem(x_ref.at[256:512], x_smem.at[256:512], loaded)
    plgpu.barrier_wait(loaded)
    o_ref[...] = x_smem[...] * 2


def example_args():
    return (jnp.arange(512 * 16, dtype=jnp.float32).reshape(512, 16),)


def reference(x):
    return np.asarray(x) * 2
