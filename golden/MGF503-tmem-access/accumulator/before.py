import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


TRANSFORMS = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    scratch_types=[
        plgpu.TMEM((128, 128), jnp.float32),
        plgpu.SMEM((128, 64), jnp.float16, transforms=TRANSFORMS),
        plgpu.SMEM((64, 128), jnp.float16, transforms=TRANSFORMS),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ],
)
def kernel(a_ref, b_ref, o_ref, acc, a_smem, b_smem, loaded, done):
    plgpu.copy_gmem_to_smem(a_ref, a_smem, loaded)
    plgpu.copy_gmem_to_smem(b_ref, b_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
    plgpu.barrier_wait(done)
    o_ref[...] = acc[...] * 2


def example_args():
    a = jnp.arange(128 * 64, dtype=jnp.float16).reshape(128, 64) / 8192
    return a, a.reshape(64, 128)


def reference(a, b):
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32) * 2
