import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32), scratch_types=[plgpu.TMEM((128, 128), jnp.float32)]
)
def kernel(x_ref, o_ref, t):
    plgpu.async_store_tmem(t, x_ref[...])  # staged
    plgpu.commit_tmem()
    loaded = plgpu.async_load_tmem(t.at[:, 0:64])
    plgpu.wait_load_tmem()
    plgpu.async_store_tmem(t.at[:, 0:64], loaded * (2 + 0 * x_ref[:, 0:64]))
    plgpu.commit_tmem()
    loaded = plgpu.async_load_tmem(t.at[:, 64:128])
    plgpu.wait_load_tmem()
    plgpu.async_store_tmem(t.at[:, 64:128], (
        loaded * 2
    ))
    plgpu.commit_tmem()
    o_ref[...] = plgpu.async_load_tmem(t)


def example_args():
    return (jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128),)


def reference(x):
    return np.asarray(x) * 2
