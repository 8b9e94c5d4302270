import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.int32),
    scratch_types=[plgpu.SMEM((128,), dtype=jnp.uint32), plgpu.Barrier()],
)
def kernel(x_ref, o_ref, smem, loaded):
    plgpu.copy_gmem_to_smem(x_ref, smem, loaded)
    plgpu.barrier_wait(loaded)
    o_ref[...] = smem[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.int32),)


def reference(x):
    return np.asarray(x) * 2
