import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    compiler_params=plgpu.GPUCompilerParams(approx_math=True),  # fast is fine
)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
