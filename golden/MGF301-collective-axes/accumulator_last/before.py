"""An accumulator, behind what is shared."""

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

    def body(smem, acc):
        smem[rows] = acc[...]
        return smem[rows] + x_ref[rows]

    o_ref[rows] = pl.run_scoped(
        body,
        plgpu.SMEM((128, 128), jnp.float32),  # both halves
        plgpu.ACC((64, 128), jnp.float32),  # one half
        collective_axes=("block", "wg"),
    )


print(kernel(jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128))[::64, :4])
