"""A kernel made in a function: the thread axis is its parameter."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def scaled(factor, thread, threads):
    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        num_threads=threads,
        thread_name=thread,
    )
    def run(x_ref, o_ref):
        def body(smem):
            @pl.when(lax.axis_index(thread) == 0)
            def _():
                smem[...] = x_ref[...] * factor
                o_ref[...] = smem[...]

        pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), collective_axes=tuple(["threads"]))

    return run


print(scaled(3.0, "warpgroup", 2)(jnp.arange(128, dtype=jnp.float32))[:4])
