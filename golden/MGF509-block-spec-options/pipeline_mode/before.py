import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32))
def kernel(x_gmem, o_gmem):
    def double(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2

    pipeline = plgpu.emit_pipeline(
        double,
        grid=(4,),
        in_specs=[pl.BlockSpec((16, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(2))],
        out_specs=[pl.BlockSpec((16, 128), lambda i: (i, 0))],
        max_concurrent_steps=2,
    )
    pipeline(x_gmem, o_gmem)


def example_args():
    return (jnp.arange(64 * 128, dtype=jnp.float32).reshape(64, 128),)


def reference(x):
    return np.asarray(x) * 2
