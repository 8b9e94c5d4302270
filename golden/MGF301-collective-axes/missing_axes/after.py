"""No axes in a kernel with warpgroups; comments between the arguments."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


THREAD = "wg"


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), num_threads=2, thread_name=THREAD)
def kernel(x_ref, o_ref):
    def body(smem):
        @pl.when(lax.axis_index(THREAD) == 0)
        def _():
            smem[...] = x_ref[...]
            o_ref[...] = smem[...] / 2

    pl.run_scoped(
        body,
        # where the row is staged
        plgpu.SMEM((128,), jnp.float32),  # one row
        collective_axes=THREAD,
    )


print(kernel(jnp.arange(128, dtype=jnp.float32))[:4])
