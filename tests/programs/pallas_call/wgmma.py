import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def matmul_body(a_ref, b_ref, o_ref, acc_ref):
    plgpu.wgmma(acc_ref, a_ref, b_ref)
    plgpu.wgmma_wait(0)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)

def kernel(a, b):
    m, k = a.shape
    _, n = b.shape
    tm = tn = 128
    tk = 64
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    return pl.pallas_call(
        matmul_body,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float16),
        grid=(m // tm, n // tn, k // tk),
        in_specs=[
            plgpu.BlockSpec((tm, tk), lambda m, n, k: (m, k), transforms=transforms),
            plgpu.BlockSpec((tk, tn), lambda m, n, k: (k, n), transforms=transforms),
        ],
        out_specs=plgpu.BlockSpec((tm, tn), lambda m, n, k: (m, n), transforms=transforms),
        scratch_shapes=[plgpu.ACC((tm, tn), jnp.float32)],
        compiler_params=plgpu.CompilerParams(
            dimension_semantics=["parallel", "parallel", "sequential"],
            max_concurrent_steps=2,
        ),
    )(a, b)

def example_args():
    return jnp.ones((256, 128), jnp.float16), jnp.ones((128, 256), jnp.float16)

def reference(a, b):
    return np.asarray(a) @ np.asarray(b)
