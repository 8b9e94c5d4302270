import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((7, 128), jnp.float32))
def kernel(x_ref, o_ref):
    @pl.loop(0, 7, unroll=4)
    def _(row):
        o_ref[row] = x_ref[row] * 2


def example_args():
    return (jnp.arange(896, dtype=jnp.float32).reshape(7, 128),)


def reference(x):
    return np.asarray(x) * 2
