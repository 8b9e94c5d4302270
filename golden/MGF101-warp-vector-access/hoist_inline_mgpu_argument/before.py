import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...]

    @plgpu.warp_map
    def _(warp_id):
        @plgpu.inline_mgpu(
            arg_types=(plgpu.Layout.WG_STRIDED((128,), 1),),
            return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=plgpu.Layout.WG_STRIDED((128,), 1)),
        )
        def twice(ctx, x):
            return x + x

        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = twice(plgpu.layout_cast(smem[...], plgpu.Layout.WG_STRIDED((128,), 1)))


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
