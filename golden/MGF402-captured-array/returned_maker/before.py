import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

def make(table, n):
    def body(*refs):
        x_ref, o_ref = refs
        o_ref[...] = x_ref[...] * table

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((n,), jnp.float32),  # as many as x
    )


def kernel(x):
    return make(np.arange(128, dtype=np.float32), 128)(x)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
