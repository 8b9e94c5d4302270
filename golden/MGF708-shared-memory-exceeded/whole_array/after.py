import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(out_type=jax.ShapeDtypeStruct((512, 256), jnp.float32))
def kernel(x_gmem, o_gmem):
    def double(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2

    plgpu.emit_pipeline(
        double,
        grid=(8,),
        in_specs=[plgpu.BlockSpec((64, 256), lambda i: (i, 0))],
        out_specs=[plgpu.BlockSpec((64, 256), lambda i: (i, 0))],
    )(x_gmem, o_gmem)


def example_args():
    return (jnp.arange(512 * 256, dtype=jnp.float32).reshape(512, 256),)


def reference(x):
    return np.asarray(x) * 2
