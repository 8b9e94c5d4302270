import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def add_up(x_ref, o_ref, sum_ref):
    k = pl.program_id(1)

    @pl.when(k == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    sum_ref[...] += x_ref[...]

    @pl.when(k == pl.num_programs(1) - 1)
    def _():
        o_ref[...] = sum_ref[...]


def kernel(x):
    steps = x.shape[0] // 2
    return pl.pallas_call(
        add_up,
        out_shape=jax.ShapeDtypeStruct((2, 128), jnp.float32),
        grid=(2, steps),
        in_specs=[pl.BlockSpec((1, 128), lambda i, k: (i * steps + k, 0))],
        out_specs=pl.BlockSpec((1, 128), lambda i, k: (i, 0)),
        scratch_shapes=[plgpu.SMEM((1, 128), jnp.float32)],
        compiler_params=plgpu.CompilerParams(
            dimension_semantics=["parallel", "sequential"],
            max_concurrent_steps=2,
            approx_math=True,
        ),
    )(x)


def example_args():
    return (jnp.arange(1024, dtype=jnp.float32).reshape(8, 128),)


def reference(x):
    return np.asarray(x).reshape(2, 4, 128).sum(1)
