import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def kernel(x):
    def body(x_ref, o_ref):
        value = pl.load(x_ref, (slice(None),))
        pl.store(o_ref, (pl.ds(0, 128),), value + x_ref[...])

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
