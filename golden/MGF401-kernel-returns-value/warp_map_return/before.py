"""Each warp returns its number; at warp level there is nothing to return it to."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4,), jnp.int32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def per_warp(warp):
        value = x_ref[warp] + warp
        o_ref[warp] = value
        return value


def example_args():
    return (jnp.array([5, 7, 11, 13], jnp.int32),)


def reference(x):
    return np.asarray(x) + np.arange(4, dtype=np.int32)
