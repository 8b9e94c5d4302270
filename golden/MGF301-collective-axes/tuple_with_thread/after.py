"""The thread axis and one more: the author's own name for it is kept."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


CLUSTER, WG = "cluster", "wg"
ROWS = 2


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((ROWS, 128), jnp.float32),
    cluster=(1,),
    cluster_names=(CLUSTER,),
    num_threads=ROWS,
    thread_name="wg",
)
def kernel(x_ref, o_ref):
    wg = lax.axis_index("wg")

    def body(rows):
        rows[wg] = x_ref[wg]
        o_ref[wg] = rows[wg] + 1

    pl.run_scoped(body, rows=plgpu.SMEM((ROWS, 128), jnp.float32), collective_axes="wg")


print(kernel(jnp.arange(256, dtype=jnp.float32).reshape(ROWS, 128))[:, :4])
