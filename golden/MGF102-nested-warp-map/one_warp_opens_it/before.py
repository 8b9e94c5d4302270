import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4,), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        # each warp one element
        @pl.when(warp_id == 0)
        def _():
            @plgpu.warp_map
            def _(inner_id):
                o_ref[inner_id] = x_ref[inner_id] * 2


def example_args():
    return (jnp.arange(4, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
