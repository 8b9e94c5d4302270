import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((256, 128), jnp.float32))
def kernel(x_gmem, y_gmem, o_gmem):
    rows = 64
    spec = pl.BlockSpec((rows, 128), lambda i: (i, 0))

    def body(_, x_smem, y_smem, o_smem):
        o_smem[...] = x_smem[...] * 2 + y_smem[...]

    plgpu.emit_pipeline(
        body, grid=(4,), in_specs=[plgpu.BlockSpec((rows, 128), lambda i: (i, 0), delay_release=1)] * 2, out_specs=[spec], max_concurrent_steps=2
    )(x_gmem, y_gmem, o_gmem)


def example_args():
    x = jnp.arange(256 * 128, dtype=jnp.float32).reshape(256, 128)
    return x, x + 1


def reference(x, y):
    return np.asarray(x) * 2 + np.asarray(y)
