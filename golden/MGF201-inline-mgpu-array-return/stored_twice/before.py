import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=(jax.ShapeDtypeStruct((128,), jnp.float32),) * 2,
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, p_ref, smem):
    smem[...] = x_ref[...]

    def write(warp_id):
        @plgpu.inline_mgpu(
            arg_types=(plgpu.RefType(),),
            return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=plgpu.Layout.WG_STRIDED((128,), 1)),
        )
        def load(ctx, ref):
            return mgpu.FragmentedArray.load_strided(ref, vec_size=1)

        @pl.when(warp_id == 3)
        def _():
            y = load(smem)
            o_ref[...] = y
            p_ref[...] = y * 2

    plgpu.warp_map(write)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
