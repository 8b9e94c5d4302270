import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

@jax.jit
def scaled(x, scale):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))(x)


def example_args():
    return (jnp.arange(128, dtype=jnp.float32), 3.0)


if __name__ == "__main__":
    scaled(*example_args())
