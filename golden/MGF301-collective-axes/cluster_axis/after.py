"""A cluster axis in place of the kernel's thread axis."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    cluster=(1,),
    cluster_names=("cluster",),
    num_threads=2,
    thread_name="wg",
)
def kernel(x_ref, o_ref):
    def body(smem):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            smem[...] = x_ref[...] * 2
            o_ref[...] = smem[...]

    pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), collective_axes="wg")


print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
