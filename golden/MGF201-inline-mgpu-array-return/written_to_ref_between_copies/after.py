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
            arg_types=(plgpu.RefType(), plgpu.RefType()),
        )
        def add_one(ctx, ref, out_ref):
            @mgpu.fori(mgpu.c(128, ir.IndexType.get()), ())
            def _(i, carry):
                x = mgpu.FragmentedArray.splat(memref.load(ref, [i]), ())  # one element a thread
                one = mgpu.FragmentedArray.splat(mgpu.c(1.0, ir.F32Type.get()), ())
                value = x + one
                memref.store(value.registers.item(), out_ref, [i])
                return carry

        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            add_one(smem, o_ref)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
