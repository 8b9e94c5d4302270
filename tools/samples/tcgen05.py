"""`plgpu.tcgen05_mma` on Blackwell, accumulated in TMEM."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

TRANSFORMS = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    scratch_types=(
        plgpu.SMEM((128, 128), jnp.float16, transforms=TRANSFORMS),
        plgpu.SMEM((128, 128), jnp.float16, transforms=TRANSFORMS),
        plgpu.TMEM((128, 128), jnp.float32),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ),
)
def kernel(a_ref, b_ref, o_ref, a_smem, b_smem, acc, loaded, done):
    plgpu.copy_gmem_to_smem(a_ref, a_smem, loaded)
    plgpu.copy_gmem_to_smem(b_ref, b_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
    plgpu.barrier_wait(done)
    o_ref[...] = plgpu.async_load_tmem(acc)


def example_args():
    a = (np.arange(128 * 128).reshape(128, 128) % 7 - 3).astype(np.float16)
    b = (np.arange(128 * 128).reshape(128, 128) % 5 - 2).astype(np.float16)
    return jnp.asarray(a), jnp.asarray(b)


def reference(a, b):
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32)
