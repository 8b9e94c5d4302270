import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32),
    scratch_types=[plgpu.SMEM((2, 128), jnp.float32), plgpu.Barrier(num_barriers=2)],
)
def kernel(x_ref, o_ref, smem, loaded):
    def load(step):
        slot = step % 2
        plgpu.copy_gmem_to_smem(x_ref.at[step], smem.at[slot], loaded.at[slot])

    for step in range(4):
        load(step)
        plgpu.barrier_wait(loaded)
        o_ref[step] = smem[step % 2] * 2


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x) * 2
