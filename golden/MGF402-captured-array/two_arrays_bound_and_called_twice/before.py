import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

A = np.arange(128) / 7
B = jnp.linspace(0, 1, 128, dtype=jnp.float32)


def body(
    scale,
    x_ref,
    o_ref,
    smem,  # what B takes
):
    smem[...] = jnp.exp(B)
    o_ref[...] = x_ref[...] * scale + smem[...] * A + A.shape[0]


def kernel(x):
    run = plgpu.kernel(
        functools.partial(body, 2.0),
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        scratch_types=[plgpu.SMEM((128,), jnp.float32)],
    )
    return run(x) - run(x + 1)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


if __name__ == "__main__":
    kernel(*example_args())
