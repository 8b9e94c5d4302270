import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref, barrier_ref, smem_ref):
    plgpu.copy_gmem_to_smem(x_ref, smem_ref, barrier_ref)
    plgpu.barrier_wait(barrier_ref)
    o_ref[...] = smem_ref[...] + 1

def kernel(x):
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        in_specs=[pl.BlockSpec(memory_space=plgpu.GMEM)],
        scratch_shapes=[plgpu.Barrier(), plgpu.SMEM((256,), jnp.float32)],
        compiler_params=plgpu.CompilerParams(),
    )(x)

def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)

def reference(x):
    return np.asarray(x) + 1
