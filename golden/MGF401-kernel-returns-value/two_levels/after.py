"""The pipeline's body returns its block and the kernel's body returns a second output: one fix mends both."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK = plgpu.BlockSpec((64, 64), lambda i: (0, i))


def doubled_and_bias(x_gmem, bias_gmem, o_gmem, bias_out_gmem):
    def step(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2.0

    plgpu.emit_pipeline(step, grid=(4,), in_specs=[BLOCK], out_specs=[BLOCK])(x_gmem, o_gmem)
    bias_out_gmem[...] = bias_gmem[...] + 1.0


kernel = plgpu.kernel(
    doubled_and_bias,
    out_type=(jax.ShapeDtypeStruct((64, 256), jnp.float32), jax.ShapeDtypeStruct((128,), jnp.float32)),
)


def example_args():
    return jnp.arange(64 * 256, dtype=jnp.float32).reshape(64, 256), jnp.arange(128, dtype=jnp.float32)


def reference(x, bias):
    return np.asarray(x) * 2, np.asarray(bias) + 1
