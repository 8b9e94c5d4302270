import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


TRANSFORMS = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((256, 128), jnp.float32),
    cluster=(2,),
    cluster_names=("pair",),
    scratch_types=[
        plgpu.TMEM((128, 128), jnp.float32),
        plgpu.SMEM((128, 64), jnp.float16, transforms=TRANSFORMS),
        plgpu.SMEM((64, 64), jnp.float16, transforms=TRANSFORMS),
        plgpu.Barrier(orders_tensor_core=True),
    ],
)
def kernel(a_ref, b_ref, o_ref, acc, a_smem, b_smem, done):
    plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False, collective_axis="pair")
    plgpu.barrier_wait(done)
    o_ref[pl.ds(jax.lax.axis_index("pair") * 128, 128)] = plgpu.async_load_tmem(acc)


def example_args():
    return jnp.ones((256, 64), jnp.float16), jnp.ones((64, 128), jnp.float16)
