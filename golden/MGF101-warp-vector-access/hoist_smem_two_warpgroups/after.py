import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


LEADER = 0


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32),
    scratch_types=(plgpu.SMEM((2, 128), jnp.float32),),
    num_threads=2,
    thread_name="wg",
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
)
def kernel(x_ref, o_ref, smem):
    wg = lax.axis_index("wg")
    smem[wg] = x_ref[wg]

    @pl.when(wg >= 0)
    def _():
        o_ref[wg] = smem[wg] * 2


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(2, 128),)
