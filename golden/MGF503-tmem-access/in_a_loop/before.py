import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((2, 128, 32), jnp.float32), scratch_types=dict(tmp=plgpu.TMEM((128, 32), jnp.float32))
)
def kernel(x_ref, o_ref, *, tmp):
    @pl.loop(0, 2)
    def _(i):
        tmp[...] = x_ref[i]
        o_ref[i] = tmp[...] * 2


def example_args():
    return (jnp.arange(2 * 128 * 32, dtype=jnp.float32).reshape(2, 128, 32),)


def reference(x):
    return np.asarray(x) * 2
