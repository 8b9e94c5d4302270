import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((4,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...] * 2

    for warp_id in range(4):
        o_ref[warp_id] = smem[warp_id]


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
