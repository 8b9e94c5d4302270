"""Every scope of a kernel in one step."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    is_first = lax.axis_index("wg") == 0

    @functools.partial(pl.run_scoped, a=plgpu.SMEM((128,), jnp.float32), collective_axes="wg")
    def _(a):
        @functools.partial(pl.run_scoped, b=plgpu.SMEM((128,), jnp.float32), collective_axes="wg")
        def _(b):
            @pl.when(is_first)
            def _():
                a[...] = x_ref[...]
                b[...] = a[...] + 1
                o_ref[...] = b[...]


print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
