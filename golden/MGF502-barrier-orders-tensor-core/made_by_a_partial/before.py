import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

barrier = functools.partial(plgpu.Barrier, num_arrivals=1)


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=[
        barrier(),  # of the copy
        barrier(),  # of the tensor core
    ],
)
def kernel(x_ref, o_ref, _, done):
    plgpu.tcgen05_commit_arrive(done)
    plgpu.barrier_wait(done)
    o_ref[...] = x_ref[...] * 2


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
