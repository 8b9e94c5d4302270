import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu



def multiply(m, n, k, dtype=jnp.float16):
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def body(a_ref, b_ref, o_ref, a_smem, b_smem, loaded):
        plgpu.copy_gmem_to_smem(a_ref, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_ref, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def accumulate(acc):
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma_wait(0)
            return acc[...]

        o_ref[...] = pl.run_scoped(accumulate, plgpu.ACC((m, n), jnp.float32))

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), jnp.float32),
        scratch_types=[
            plgpu.SMEM((m, k), dtype, transforms=transforms),
            plgpu.SMEM((k, n), dtype, transforms=transforms),
            plgpu.Barrier(num_arrivals=2),
        ],
    )


def kernel(a, b):
    return multiply(64, 128, 64)(a, b)


def example_args():
    return (jnp.ones((64, 64), jnp.float16) / 8, jnp.arange(64 * 128, dtype=jnp.float16).reshape(64, 128) / 4096)


def reference(a, b):
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32)
