"""The body writes its output in a loop and returns the Ref itself."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(out_type=jax.ShapeDtypeStruct((8, 128), jnp.float32), mesh=plgpu.Mesh())
def kernel(x_ref, o_ref):
    def row(i, carry):
        o_ref[i] = x_ref[i] + 1.0
        return carry

    lax.fori_loop(0, 8, row, None)


def example_args():
    return (jnp.arange(1024, dtype=jnp.float32).reshape(8, 128),)


def reference(x):
    return np.asarray(x) + 1
