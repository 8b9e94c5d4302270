"""MGF512 to MGF515 and MGF710: arguments in forms that JAX does not take. Nothing here imports JAX."""

import pytest
from proposals import proposed

from mgpu_fix.catalogue import NoFix

HEAD = (
    "import functools\nimport jax\nimport jax.numpy as jnp\nfrom jax.experimental import pallas as pl\n"
    "from jax.experimental.pallas import mosaic_gpu as plgpu\n"
    "from jax.experimental.pallas.mosaic_gpu import kernel as made\n"
)
WAIT = ("TypeError", "wait_smem_to_gmem() missing 1 required positional argument: 'n'")
PRINT = ("ValueError", "Only positional arguments are supported by debug_print on Pallas.")
BODY = ("TypeError", "body() missing 1 required positional argument: 's'")
LENGTH = ("TypeError", "object of type 'int' has no len()")
ITERABLE = ("TypeError", "'int' object is not iterable")
TRANSFORM = ("TypeError", "'TilingTransform' object is not iterable")
TILING = ("TypeError", "TilingTransform.__init__() takes 2 positional arguments but 3 were given")
GRID = ("ValueError", "grid_names must have the same length as grid, got Mesh(grid=(4,), grid_names='rows', cluster=()")
THREADS = (
    "ValueError",
    "Requested too many CUDA threads per block. Each Mosaic thread corresponds to 128 CUDA threads.",
)
SEMANTICS = ("NotImplementedError", "dimension_semantics= is not supported by the unpipelined lowering")

CASES = {
    "a wait": (WAIT, "plgpu.wait", "plgpu.wait_smem_to_gmem( )", "plgpu.wait_smem_to_gmem(0 )"),
    "a wait with more": (
        WAIT, "plgpu.wait", "plgpu.wait_smem_to_gmem(wait_read_only=True)",
        "plgpu.wait_smem_to_gmem(0, wait_read_only=True)",
    ),
    "values by name": (
        PRINT, "jax.debug", "jax.debug.print('{a} {bb}', bb=f(1), a=2)", "jax.debug.print('{} {}', 2, f(1))",
    ),
    "values on lines": (
        PRINT, "pl.debug", "pl.debug_print(\n    'x {x}',\n    x=x,\n)", "pl.debug_print(\n    'x {}',\n    x,\n)",
    ),
    "scratch": (
        BODY, "k(1)", "k = plgpu.kernel(body, scratch_types=(plgpu.SMEM((8,), d)), grid=(1,))\nk(1)",
        "k = plgpu.kernel(body, scratch_types=(plgpu.SMEM((8,), d),), grid=(1,))\nk(1)",
    ),
    "scratch of a decorator": (
        BODY, "k(1)", "@functools.partial(made, scratch_shapes=plgpu.Barrier())\ndef k(s): ...\nk(1)",
        "@functools.partial(made, scratch_shapes=(plgpu.Barrier(),))\ndef k(s): ...\nk(1)",
    ),
    "a grid": (LENGTH, "plgpu.Mesh", "m = plgpu.Mesh(grid=4)", "m = plgpu.Mesh(grid=(4,))"),
    "names": (
        GRID, "plgpu.Mesh", "m = plgpu.Mesh(grid_names=('rows'))", "m = plgpu.Mesh(grid_names=('rows',))",
    ),
    "a shape with a name": (
        ITERABLE, "plgpu.SMEM", "N = 8\ns = plgpu.SMEM(N, d)", "N = 8\ns = plgpu.SMEM((N,), d)",
    ),
    "transforms": (
        TRANSFORM, "k(1)",
        "k = made(body, scratch_types=[plgpu.SMEM((8, 8), d, transforms=plgpu.TilingTransform((8, 8)))])\nk(1)",
        "k = made(body, scratch_types=[plgpu.SMEM((8, 8), d, transforms=(plgpu.TilingTransform((8, 8)),))])\nk(1)",
    ),
    "a tile": (TILING, "plgpu.T", "t = plgpu.TilingTransform(8, n)", "t = plgpu.TilingTransform((8, n))"),
    "threads": (THREADS, "made(f", "k = made(f, num_threads=384)", "k = made(f, num_threads=3)"),
    "threads with a name": (
        THREADS, "plgpu.Mesh", "T = 128\nk = plgpu.Mesh(num_threads=T)", "T = 1\nk = plgpu.Mesh(num_threads=T)",
    ),
    "semantics of axes": (
        SEMANTICS, "k(1)",
        "p = plgpu.CompilerParams(dimension_semantics=('parallel',))\nk = made(f, compiler_params=p)\nk(1)",
        "p = plgpu.CompilerParams()\nk = made(f, compiler_params=p)\nk(1)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_it_becomes(case: str) -> None:
    error, at, before, after = CASES[case]
    source, [found] = proposed(HEAD + before, at, *error)
    assert source.edited(found.edits).text == HEAD + after


LEFT = {
    "a wait that is given more": (WAIT, "f(", "f()(1, 2)", "by hand: give the wait a number"),
    "a format": (PRINT, "jax.debug", "jax.debug.print('{a:d}', a=1)", "put `{}` into the text"),
    "braces": (PRINT, "jax.debug", "jax.debug.print('{{}} {a}', a=1)", "put `{}` into the text"),
    "a name too many": (PRINT, "jax.debug", "jax.debug.print('{a}', a=1, b=2)", "put `{}` into the text"),
    "no literal": (PRINT, "jax.debug", "jax.debug.print(text, a=1)", "put `{}` into the text"),
    "a comment": (PRINT, "jax.debug", "jax.debug.print('{a}',  # what\n    a=1)", "put `{}` into the text"),
    "scratch that lacks something": (
        BODY, "k(1)", "k = made(body, scratch_types=[plgpu.Barrier()])\nk(1)", "declare all",
    ),
    "scratch that a function makes": (
        BODY, "k(1)", "def f(): return [1]\nk = made(body, scratch_types=f())\nk(1)", "declare all that the body takes",
    ),
    "no scratch": (BODY, "k(1)", "k = made(body)\nk(1)", "declare all that the body takes"),
    "a length of something else": (LENGTH, "made(", "k = made(body, out_type=4)", "make a tuple of it"),
    "threads that are no warpgroups": (THREADS, "made(", "k = made(f, num_threads=100)", "warpgroups of 128 threads"),
    "threads that something else counts": (
        THREADS, "made(", "T = 128\nb = plgpu.Barrier(num_arrivals=T)\nk = made(f, num_threads=T)", "warpgroups of 128",
    ),
    "threads that ask which they are": (
        THREADS, "made(", "i = jax.lax.axis_index('w')\nk = made(f, num_threads=128, thread_name='w')", "has one place",
    ),
    "threads that may": (
        THREADS, "made(", "i = jax.lax.axis_index(n)\nk = made(f, num_threads=128, thread_name='w')", "has one place",
    ),
    "more than fit": (THREADS, "made(", "k = made(f, num_threads=4096)", "at most 16"),
    "an order": (
        SEMANTICS, "k(1)",
        "k = made(f, compiler_params=plgpu.CompilerParams(dimension_semantics=['sequential']))\nk(1)",
        "blocks run in parallel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_what_may_mean_something_else_is_left(case: str) -> None:
    error, at, text, why = LEFT[case]
    with pytest.raises(NoFix) as caught:
        proposed(HEAD + text, at, *error)
    assert why in str(caught.value)
