"""An accumulator by its name, in a decorator."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    num_threads=2,
    thread_name="wg",
)
def kernel(x_ref, o_ref):
    rows = pl.ds(lax.axis_index("wg") * 64, 64)

    @functools.partial(
        pl.run_scoped,
        smem=plgpu.SMEM((128, 128), jnp.float32),
        collective_axes="wg",
    )
    def _(smem):
        @functools.partial(pl.run_scoped, acc=plgpu.ACC((64, 128), jnp.float32))
        def _(acc):
            smem[rows] = acc[...]
            o_ref[rows] = smem[rows] + x_ref[rows]


print(kernel(jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128))[::64, :4])
