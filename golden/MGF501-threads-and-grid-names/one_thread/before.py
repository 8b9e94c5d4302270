import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


def _double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


kernel = plgpu.kernel(_double, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), num_threads=1)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
