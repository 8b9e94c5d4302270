"""`plgpu.inline_mgpu`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.inline_mgpu(
    arg_types=(plgpu.RefType(),),
    return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=plgpu.Layout.WG_STRIDED((128,), vec_size=1)),
)
def load_and_add(ctx, ref):
    del ctx
    return mgpu.FragmentedArray.load_strided(ref, vec_size=1) + 1.0


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
)
def kernel(x_ref, o_ref):
    o_ref[...] = load_and_add(x_ref)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)


def reference(x):
    return np.asarray(x) + 1
