import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    scratch_types=[plgpu.TMEM((128, 128), jnp.float32)],
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
)
def kernel(x_ref, o_ref, t):
    plgpu.async_store_tmem(t, plgpu.load(x_ref, layout=plgpu.Layout.TCGEN05, optimized=False) * 3)
    plgpu.commit_tmem()
    o_ref[...] = plgpu.async_load_tmem(t)


def example_args():
    return (jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128),)


def reference(x):
    return np.asarray(x) * 3
