import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((4, 64), jnp.float32),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
)
def kernel(x_ref, o_ref):
    for row in range(4):
        o_ref[row] = x_ref[row] * 2


def example_args():
    return (jnp.arange(256, dtype=jnp.float32).reshape(4, 64),)


def reference(x):
    return np.asarray(x) * 2
