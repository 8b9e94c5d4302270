import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

COEFFICIENTS = jnp.array([1.0, 0.5, 0.25])
ROWS = jnp.arange(512, dtype=jnp.float32).reshape(4, 128)

out_type = jax.ShapeDtypeStruct((4, 128), jnp.float32)


def horner(x_ref, coefficients_ref, rows_ref, o_ref):
    row = lax.axis_index("row")
    x = x_ref[row, :]
    y = x * coefficients_ref[2] + coefficients_ref[1]
    o_ref[row, :] = y * x + coefficients_ref[0] + rows_ref[row]


_kernel = pl.kernel(horner, mesh=plgpu.Mesh(grid=(4,), grid_names=("row",)), out_type=out_type)


def kernel(x):
    return _kernel(x, COEFFICIENTS, ROWS)


def example_args():
    return (jnp.arange(512, dtype=jnp.float32).reshape(4, 128) / 512,)


if __name__ == "__main__":
    kernel(*example_args())
