import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32), grid=(1,), grid_names=("g",))
def kernel(x_ref, o_ref):
    @plgpu.nd_loop(
        (2,),
        collective_axes="g",
        include_wave_step=True,
    )
    def tiles(idx, wave_step):
        tile = pl.ds(idx[0] * 128, 128)
        o_ref[tile] = x_ref[tile] * 2 + jnp.astype(wave_step, jnp.float32)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2 + np.repeat(np.float32([0, 1]), 128)
