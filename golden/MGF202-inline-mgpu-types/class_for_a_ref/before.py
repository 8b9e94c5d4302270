import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=[plgpu.SMEM((128,), jnp.float32)],
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...]

    @plgpu.inline_mgpu(arg_types=(plgpu.RefType,))
    def twice(ctx, ref):
        value = mgpu.FragmentedArray.load_strided(ref)
        (value + value).store_untiled(ref, optimized=False)

    twice(smem)
    o_ref[...] = smem[...]


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) * 2
