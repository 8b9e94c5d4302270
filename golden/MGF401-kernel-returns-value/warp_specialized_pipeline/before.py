import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((256,), jnp.float32),
    num_threads=2,
    thread_name="wg",
)
def kernel(x_ref, o_ref):
    def double(_, x_smem, o_smem):
        return x_smem[...] * 2

    spec = plgpu.BlockSpec((128,), lambda i: (i,))
    plgpu.emit_pipeline_warp_specialized(
        double,
        grid=(2,),
        in_specs=[spec],
        out_specs=[spec],
        wg_axis="wg",
        num_compute_wgs=1,
        memory_registers=40,
    )(x_ref, o_ref)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)
