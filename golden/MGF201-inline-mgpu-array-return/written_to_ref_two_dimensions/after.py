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
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32),
    scratch_types=(plgpu.SMEM((2, 128), jnp.float32), plgpu.Barrier()),
)
def kernel(x_ref, o_ref, smem, barrier):
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.inline_mgpu(
            arg_types=(plgpu.RefType(), plgpu.RefType()),
        )
        def twice(ctx, ref, out_ref):
            @mgpu.fori(mgpu.c(2, ir.IndexType.get()), ())
            def _(i, carry):
                @mgpu.fori(mgpu.c(128, ir.IndexType.get()), ())
                def _(j, carry):
                    value = mgpu.FragmentedArray.splat(memref.load(ref, [i, j]), ()) * 2.0
                    memref.store(value.registers.item(), out_ref, [i, j])
                    return carry
                return carry

        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            twice(smem, o_ref)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)


if __name__ == "__main__":
    kernel(*example_args())
