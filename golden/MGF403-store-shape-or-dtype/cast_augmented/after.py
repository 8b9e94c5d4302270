import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((2, 128), jnp.float16))
def kernel(x_ref, b_ref, o_ref):
    o_ref[...] = x_ref[...]
    o_ref[0] = (o_ref[0] + b_ref[...] * 2).astype(o_ref.dtype)
    o_ref[1] = (o_ref[1] * (b_ref[...] - 3)).astype(o_ref.dtype)


def example_args():
    return jnp.ones((2, 128), jnp.float16), jnp.arange(128, dtype=jnp.float32)
