import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu


STRIDED = plgpu.Layout.WG_STRIDED((128,), 1)


@plgpu.inline_mgpu(
    arg_types=(plgpu.RefType(),),
    return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=STRIDED),
)
def load(ctx, ref):
    return mgpu.FragmentedArray.load_strided(ref, vec_size=1)


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...]

    # one warp stores
    y = load(smem)
    o_ref[...] = y * y


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
