import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32), grid=(2,), grid_names=("g",))
def kernel(x_ref, o_ref):
    @plgpu.nd_loop((2,), collective_axes="g")
    def tiles(loop_info):  # one tile each
        (i,) = loop_info.index
        tile = pl.ds(i * 128, 128)
        o_ref[tile] = x_ref[tile] * 2


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
