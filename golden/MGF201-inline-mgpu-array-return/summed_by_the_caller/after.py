import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import memref


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()),
)
def kernel(x_ref, o_ref, smem, barrier):
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.inline_mgpu(
            arg_types=(plgpu.RefType(),),
            return_type=plgpu.ShapeDtypeStruct((), jnp.float32, layout=plgpu.Layout.WG_SPLAT),
        )
        def squares(ctx, ref):
            def element(i):
                x = mgpu.FragmentedArray.splat(memref.load(ref, [i]), ())
                return x * x

            result = element(mgpu.c(0, ir.IndexType.get()))
            for i in range(1, 128):
                result = result + element(mgpu.c(i, ir.IndexType.get()))
            return result

        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            o_ref[0] = squares(smem)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
