import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


def axpy(alpha, dtype=jnp.float32):
    def body(x_ref, y_ref, out_ref):
        out_ref[...] = alpha * x_ref[...] + y_ref[...]

    out = jax.ShapeDtypeStruct((512,), dtype)
    return plgpu.kernel(body, out_type=out, num_threads=1, thread_name="wg")


def kernel(x, y):
    return axpy(3.0)(x, y)


def example_args():
    return jnp.linspace(-1.0, 1.0, 512, dtype=jnp.float32), jnp.ones(512, jnp.float32)


def reference(x, y):
    return 3.0 * np.asarray(x) + np.asarray(y)
