import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=[plgpu.RefUnion(plgpu.SMEM((128,), jnp.int8), plgpu.SMEM((128,), jnp.float32))],
)
def kernel(x_ref, o_ref, union):
    mask, row = union
    mask[...] = (x_ref[...] > 0).astype(mask.dtype)
    row[...] = x_ref[...] * 2
    o_ref[...] = row[...]


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
