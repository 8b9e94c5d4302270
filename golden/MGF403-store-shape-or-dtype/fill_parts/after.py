import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32))
def kernel(x_ref, o_ref):
    o_ref[0] = jnp.full((128,), 0, o_ref.dtype)
    o_ref[1, :] = jnp.full((128,), x_ref[3], o_ref.dtype)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
