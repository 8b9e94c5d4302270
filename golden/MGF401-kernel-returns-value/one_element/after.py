"""The total is one number, the output an array of one element."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((1,), jnp.float32))
def kernel(x_ref, o_ref):
    o_ref[0] = jnp.sum(x_ref[...])


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x).sum(keepdims=True)
