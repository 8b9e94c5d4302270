import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


def double(src, dst):
    dst[...] = src[...] * 2


@functools.partial(
    plgpu.kernel,
    out_type=(jax.ShapeDtypeStruct((128, 128), jnp.float32), jax.ShapeDtypeStruct((128,), jnp.float32)),
)
def kernel(x_ref, y_ref, o_ref, p_ref):
    double(y_ref, p_ref)
    spec = plgpu.BlockSpec((64, 128), lambda i: (i, 0))
    plgpu.emit_pipeline(lambda _, *refs: double(*refs), grid=(2,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)


def example_args():
    return jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128), jnp.arange(128, dtype=jnp.float32)


def reference(x, y):
    return np.asarray(x) * 2, np.asarray(y) * 2
