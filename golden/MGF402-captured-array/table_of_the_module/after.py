import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

# squares
TABLE = np.arange(128, dtype=np.float32) ** 2


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def _kernel(x_ref, table_ref, o_ref):
    o_ref[...] = x_ref[...] + table_ref[...]  # as many as x


def kernel(x):
    return _kernel(x, TABLE)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
