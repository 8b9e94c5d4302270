import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import memref


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()),
)
def kernel(x_ref, o_ref, smem, barrier):
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.inline_mgpu(
            arg_types=(plgpu.RefType(),),
            return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=plgpu.Layout.WG_STRIDED((128,), 1)),
        )
        def add_one(ctx, ref):
            x = mgpu.FragmentedArray.load_strided(ref, vec_size=1)  # one element a thread
            one = mgpu.FragmentedArray.splat(mgpu.c(1.0, ir.F32Type.get()), x.shape, layout=x.layout)
            return x + one

        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            o_ref[...] = add_one(smem)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
