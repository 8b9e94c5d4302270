import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


ROWS = 64


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((4 * ROWS, 128), jnp.float32))
def kernel(x_gmem, o_gmem):
    def body(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2

    spec = pl.BlockSpec((ROWS, 128), lambda i: (i, 0))
    plgpu.emit_pipeline(
        body,
        grid=(4,),
        in_specs=[
            plgpu.BlockSpec(
                (ROWS, 128),
                lambda i: (i, 0),
                delay_release=1,
            ),
        ],
        out_specs=[spec],
        max_concurrent_steps=2,
        # hides the latency
    )(x_gmem, o_gmem)


def example_args():
    return (jnp.arange(256 * 128, dtype=jnp.float32).reshape(256, 128),)


def reference(x):
    return np.asarray(x) * 2
