import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def row():
    return pl.program_id(0)


def kernel(x):
    def body(x_ref, o_ref):
        @pl.when(lax.axis_index("r") < pl.num_programs(0))
        def _():
            o_ref[row()] = x_ref[row()] * 2

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(4,), grid_names=("r",))(x)


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128),)


def reference(x):
    return np.asarray(x) * 2
