import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

LANE = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)


def body(a_ref, b_ref, o_ref, a_smem, b_smem, barrier):
    plgpu.copy_gmem_to_smem(a_ref, a_smem, barrier)
    plgpu.copy_gmem_to_smem(b_ref, b_smem, barrier)
    plgpu.barrier_wait(barrier)

    def multiplied(acc):
        plgpu.wgmma(acc, a_smem, b_smem)
        return acc[...]

    o_ref[...] = pl.run_scoped(multiplied, plgpu.ACC(o_ref.shape, jnp.float32))


small = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
    scratch_types=[
        plgpu.SMEM((64, 64), jnp.float16, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))),
        plgpu.SMEM((64, 64), jnp.float16, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))),
        plgpu.Barrier(num_arrivals=2),
    ],
    compiler_params=LANE,
)
large = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    scratch_types=[
        plgpu.SMEM((64, 64), jnp.float16, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))),
        plgpu.SMEM((64, 128), jnp.float16, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))),
        plgpu.Barrier(num_arrivals=2),
    ],
    compiler_params=LANE,
)


def kernel(a, b, c):
    return small(a, b), large(a, c)


def example_args():
    return jnp.ones((64, 64), jnp.float16), jnp.ones((64, 64), jnp.float16), jnp.ones((64, 128), jnp.float16)


def reference(a, b, c):
    a, b, c = (np.asarray(v, np.float32) for v in (a, b, c))
    return a @ b, a @ c
