import functools

import jax
import jax.numpy as jnp
from jax._src.lib.mlir import ir
from jax.experimental import pallas as pl
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(
    plgpu.kernel,
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
    scratch_types=(plgpu.SMEM((128,), jnp.float32),),
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...]

    @plgpu.inline_mgpu(
        arg_types=(plgpu.RefType(),),
        return_type=(
            plgpu.ShapeDtypeStruct((128,), jnp.float32, layout=plgpu.Layout.WG_STRIDED((128,), 1)),
            plgpu.ShapeDtypeStruct((), jnp.float32, layout=plgpu.Layout.WG_SPLAT),
        ),
    )
    def load(ctx, ref):
        two = mgpu.FragmentedArray.splat(mgpu.c(2.0, ir.F32Type.get()), ())
        return mgpu.FragmentedArray.load_strided(ref, vec_size=1), two

    x, two = load(smem)
    o_ref[...] = x * two


def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
