import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...] * 2

    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 1)
        def _():
            o_ref[0] = smem[3] + 1  # the fourth


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
