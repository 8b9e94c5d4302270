import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), num_threads=128, thread_name="wg")
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
