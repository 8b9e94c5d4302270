import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32))
def kernel(x_ref, y_ref, o_ref):
    x, y = x_ref[...], y_ref[...]
    o_ref[...] = x + jax.lax.broadcast_in_dim(y, x.shape, [0])


def example_args():
    return jnp.ones((128, 128), jnp.float32), jnp.arange(128, dtype=jnp.float32)


def reference(x, y):
    return np.asarray(x) + np.asarray(y)[:, None]
