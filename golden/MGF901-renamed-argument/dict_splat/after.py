import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

WIDTH = 128
COMMON = dict(out_type=jax.ShapeDtypeStruct((WIDTH,), jnp.float32))


def difference(a_ref, b_ref, o_ref):
    o_ref[...] = a_ref[...] - b_ref[...]


def square(x_ref, o_ref, s_ref):
    s_ref[...] = x_ref[...] * x_ref[...]
    plgpu.commit_smem()
    o_ref[...] = s_ref[...]


def kernel(a, b):
    options = {**COMMON, "num_threads": 1, "thread_name": "wg"}
    options["scratch_types"] = [plgpu.SMEM((WIDTH,), jnp.float32)]
    return plgpu.kernel(square, **options)(plgpu.kernel(difference, **COMMON)(a, b))


def example_args():
    return jnp.arange(WIDTH, dtype=jnp.float32), jnp.ones(WIDTH, jnp.float32) * 3


def reference(a, b):
    return (np.asarray(a) - np.asarray(b)) ** 2
