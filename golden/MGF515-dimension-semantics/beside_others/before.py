import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


PARAMS = plgpu.CompilerParams(dimension_semantics=("parallel",), approx_math=True)


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), compiler_params=PARAMS)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
