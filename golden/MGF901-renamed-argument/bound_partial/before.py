from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TILE = 128

tiled_kernel = partial(plgpu.kernel, grid=(3,), grid_names=("tile",))


@tiled_kernel(out_shape=jax.ShapeDtypeStruct((3 * TILE,), jnp.int32))
def kernel(x_ref, o_ref):
    tile = pl.ds(lax.axis_index("tile") * TILE, TILE)
    o_ref[tile] = x_ref[tile] * 7


def example_args():
    return (jnp.arange(3 * TILE, dtype=jnp.int32),)


def reference(x):
    return np.asarray(x) * 7
