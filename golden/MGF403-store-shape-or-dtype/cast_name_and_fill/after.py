import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=(jax.ShapeDtypeStruct((128,), jnp.float32),) * 2)
def kernel(x_ref, o_ref, p_ref):
    x = x_ref[...]
    o_ref[...] = x.astype(o_ref.dtype)
    p_ref[...] = jnp.full(p_ref.shape, 1.5, p_ref.dtype)


def example_args():
    return (jnp.arange(128, dtype=jnp.bfloat16),)
