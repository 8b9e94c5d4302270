import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
)
def kernel(x_ref, o_ref):
    columns = jax.lax.broadcasted_iota(jnp.float32, x_ref.shape, 1)
    o_ref[...] = x_ref[...] + columns


def example_args():
    return (jnp.ones((128, 128), jnp.float32),)


def reference(x):
    return np.asarray(x) + np.arange(128)
