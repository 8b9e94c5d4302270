import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def kernel(a, b):
    tiles = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, o_smem, barrier):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, barrier)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, barrier)
        plgpu.barrier_wait(barrier)

        def multiply(acc):
            plgpu.wgmma(acc, a_smem, b_smem)

            o_smem[...] = acc[...].astype(jnp.float16)

        pl.run_scoped(multiply, plgpu.ACC((64, 64), jnp.float32))
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float16),
        scratch_types=[
            plgpu.SMEM((64, 64), jnp.float16, transforms=tiles),
            plgpu.SMEM((64, 64), jnp.float16, transforms=tiles),
            plgpu.SMEM((64, 64), jnp.float16),
            plgpu.Barrier(num_arrivals=2),
        ],
    )(a, b)


def example_args():
    a = (jnp.arange(64 * 64) % 7).astype(jnp.float16).reshape(64, 64)
    return (a, a.T)
