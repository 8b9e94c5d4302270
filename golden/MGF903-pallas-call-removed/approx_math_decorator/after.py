import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((256,), jnp.float32),
    scratch_types=[plgpu.SMEM((256,), jnp.float32)],
    compiler_params=plgpu.CompilerParams(approx_math=True),  # faster
)
def kernel(x_ref, o_ref, x_smem):
    x_smem[...] = x_ref[...]
    o_ref[...] = jnp.exp(x_smem[...])


def example_args():
    return (jnp.linspace(-1, 1, 256, dtype=jnp.float32),)


def reference(x):
    return np.exp(np.asarray(x))
