import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
    compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane),
)
def kernel(a_ref, b_ref, o_ref):
    def multiplied(acc):
        def step(_, a_smem, b_smem):
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma_wait(0)

        plgpu.emit_pipeline(
            step,
            grid=(4,),
            in_specs=[
                plgpu.BlockSpec((64, 32), lambda k: (0, k), transforms=(plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(64))),
                plgpu.BlockSpec((32, 64), lambda k: (k, 0), transforms=(plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(64))),
            ],
            max_concurrent_steps=2,
        )(a_ref, b_ref)
        return acc[...]

    o_ref[...] = pl.run_scoped(multiplied, plgpu.ACC((64, 64), jnp.float32))


def example_args():
    return jnp.ones((64, 128), jnp.bfloat16), jnp.ones((128, 64), jnp.bfloat16)


def reference(a, b):
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32)
