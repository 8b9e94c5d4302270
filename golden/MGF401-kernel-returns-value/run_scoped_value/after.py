"""The result of ``run_scoped`` is the output; what the scoped function returns is its own affair."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
def kernel(x_ref, o_ref):
    def staged(buffer):
        buffer[...] = x_ref[...]
        value = buffer[...]
        return value * value - value

    o_ref[...] = pl.run_scoped(
        staged,
        plgpu.SMEM((128,), jnp.float32),
    )


def example_args():
    return (jnp.arange(128, dtype=jnp.float32) / 64,)


def reference(x):
    x = np.asarray(x)
    return x * x - x
