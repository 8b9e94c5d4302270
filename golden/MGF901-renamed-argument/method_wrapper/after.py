import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


class KernelBuilder:
    def kernel(self, *args, **kwargs):
        params = kwargs.pop("compiler_params", plgpu.CompilerParams())
        return plgpu.kernel(*args, compiler_params=params, **kwargs)

    def build(self, x):
        row = jax.ShapeDtypeStruct(x.shape, x.dtype)

        @self.kernel(out_type=row)
        def double(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        @functools.partial(
            self.kernel, out_type=row, scratch_types=[plgpu.SMEM(x.shape, x.dtype)]
        )
        def add_one(x_ref, o_ref, s_ref):
            s_ref[...] = x_ref[...] + 1
            plgpu.commit_smem()
            o_ref[...] = s_ref[...]

        def halve(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 0.5

        return self.kernel(halve, out_type=row)(add_one(double(x)))


def kernel(x):
    return KernelBuilder().build(x)


def example_args():
    return (jnp.arange(256, dtype=jnp.float32),)


def reference(x):
    return (np.asarray(x) * 2 + 1) / 2
