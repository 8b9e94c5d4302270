"""`plgpu.emit_pipeline` over blocks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((256, 64), jnp.float32))
def kernel(x_gmem, o_gmem):
    def body(indices, x_smem, o_smem):
        o_smem[...] = x_smem[...] + 1

    spec = plgpu.BlockSpec((64, 64), lambda i: (i, 0))
    plgpu.emit_pipeline(body, grid=(4,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2)(x_gmem, o_gmem)


def example_args():
    return (jnp.arange(256 * 64, dtype=jnp.float32).reshape(256, 64),)


def reference(x):
    return np.asarray(x) + 1
