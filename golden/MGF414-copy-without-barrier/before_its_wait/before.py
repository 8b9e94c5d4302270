import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=[plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()],
)
def kernel(x_ref, o_ref, smem, loaded):
    plgpu.copy_gmem_to_smem(x_ref, smem)
    plgpu.barrier_wait(loaded)
    o_ref[...] = smem[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
