import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    @pl.loop(1, 4, init_carry=x_ref[0])
    def total(i, acc):
        acc += x_ref[i]
        return acc

    o_ref[...] = total


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x).sum(axis=0)
