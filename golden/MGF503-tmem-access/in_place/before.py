import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32), scratch_types=[plgpu.TMEM((128, 128), jnp.float32)]
)
def kernel(x_ref, o_ref, t):
    t[...] = x_ref[...]  # staged
    t[:, 0:64] *= 2 + 0 * x_ref[:, 0:64]
    t[:, 64:128] = (
        t[:, 64:128] * 2
    )
    o_ref[...] = t[...]


def example_args():
    return (jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128),)


def reference(x):
    return np.asarray(x) * 2
