import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


TRANSFORMS = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    scratch_types=[
        plgpu.SMEM((64, 64), jnp.float16, transforms=TRANSFORMS),
        plgpu.SMEM((64, 128), jnp.float16, transforms=TRANSFORMS),
        plgpu.Barrier(num_arrivals=2),
    ],
)
def kernel(a_ref, b_ref, c_ref, o_ref, a_smem, b_smem, loaded):
    plgpu.copy_gmem_to_smem(a_ref, a_smem, loaded)
    plgpu.copy_gmem_to_smem(b_ref, b_smem, loaded)
    plgpu.barrier_wait(loaded)

    def multiplied(acc):
        plgpu.wgmma(acc, a_smem, b_smem)
        return acc[...]

    product = pl.run_scoped(multiplied, plgpu.ACC((64, 128), jnp.float32))
    plgpu.store(o_ref, product + c_ref[...].astype(product.dtype), optimized=False)


def example_args():
    return jnp.ones((64, 64), jnp.float16), jnp.ones((64, 128), jnp.float16), jnp.ones((64, 128), jnp.bfloat16)


def reference(a, b, c):
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32) + np.asarray(c, np.float32)
