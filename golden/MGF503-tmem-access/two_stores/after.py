import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128, 64), jnp.float32),
    scratch_types=dict(
        a_tmem=plgpu.TMEM((128, 64), jnp.float32),
        b_tmem=plgpu.TMEM((128, 64), jnp.float32),
    ),
)
def kernel(x_ref, o_ref, a_tmem, b_tmem):
    x = plgpu.load(x_ref, layout=plgpu.Layout.TCGEN05, optimized=False)
    plgpu.async_store_tmem(a_tmem, x)  # keep x
    plgpu.async_store_tmem(b_tmem, x * 2)
    plgpu.commit_tmem()
    a = plgpu.async_load_tmem(a_tmem)
    b = plgpu.async_load_tmem(b_tmem)
    o_ref[...] = a + b


def example_args():
    return (jnp.arange(128 * 64, dtype=jnp.float32).reshape(128, 64),)


def reference(x):
    return np.asarray(x) * 3
