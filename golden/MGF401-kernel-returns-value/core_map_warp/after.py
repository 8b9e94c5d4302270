"""A warp-level body returns early and at its end."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

VERBOSE = False


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4,), jnp.int32))
def kernel(o_ref):
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _per_warp():
        warp = lax.axis_index("warp")
        o_ref[warp] = 3 * warp + 1
        if not VERBOSE:
            return
        pl.debug_print("warp {}", warp)


def example_args():
    return ()


def reference():
    return 3 * np.arange(4, dtype=np.int32) + 1
