import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=(jax.ShapeDtypeStruct((4,), jnp.float32), jax.ShapeDtypeStruct((128,), jnp.float32)),
    scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()),
)
def kernel(x_ref, o_ref, p_ref, smem, barrier):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 3)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)

        # each warp one element
        at = 2 * warp_id
        o_ref[warp_id] = x_ref[at] + 1

    p_ref[...] = smem[...]


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
