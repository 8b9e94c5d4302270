import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1

def kernel(x):
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2,),
        in_specs=[plgpu.BlockSpec((64, 64), lambda i: (i, 0), transforms=transforms)],
        out_specs=plgpu.BlockSpec((64, 64), lambda i: (i, 0), transforms=transforms),
        compiler_params=plgpu.CompilerParams(),
    )(x)

def example_args():
    return (jnp.arange(128 * 64, dtype=jnp.float16).reshape(128, 64) % 100,)

def reference(x):
    return np.asarray(x) + 1
