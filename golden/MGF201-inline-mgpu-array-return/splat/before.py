import functools

import jax
import jax.numpy as jnp
from jax._src.lib.mlir import ir
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.inline_mgpu(
            arg_types=(),
            return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=plgpu.Layout.WG_SPLAT((128,))),
        )
        def fill(ctx):
            return mgpu.FragmentedArray.splat(mgpu.c(2.0, ir.F32Type.get()), (128,))

        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = fill()


def example_args():
    return ()
