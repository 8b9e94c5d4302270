import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((256,), "int32"))
def kernel(o_ref):
    o_ref[pl.ds(0, 128)] = jnp.full((128,), 1, o_ref.dtype)
    o_ref[128:] = jnp.full((128,), 2, o_ref.dtype)


def example_args():
    return ()
