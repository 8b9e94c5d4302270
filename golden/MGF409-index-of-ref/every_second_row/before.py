import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32))
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[::2]


def example_args():
    return (jnp.arange(1024, dtype=jnp.float32).reshape(8, 128),)


def reference(x):
    return np.asarray(x)[::2]
