import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def both(x_ref, sum_ref, difference_ref):
    sum_ref[...] = x_ref[...] + 1
    difference_ref[...] = x_ref[...] - 1


@jax.jit
def kernel(x):
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return plgpu.kernel(both, out_type=(out, out), kernel_name="plus_minus")(x)  # two outputs


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) + 1, np.asarray(x) - 1
