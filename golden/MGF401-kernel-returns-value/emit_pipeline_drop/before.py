"""A pipeline's body returns its block, which the pipeline drops."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK = plgpu.BlockSpec((64, 64), lambda i, j: (i, j))


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32))
def kernel(x_gmem, o_gmem):
    def body(indices, x_smem, o_smem):
        return x_smem[...] + 1.0

    plgpu.emit_pipeline(body, grid=(2, 2), in_specs=[BLOCK], out_specs=[BLOCK])(x_gmem, o_gmem)


def example_args():
    return (jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128),)


def reference(x):
    return np.asarray(x) + 1
