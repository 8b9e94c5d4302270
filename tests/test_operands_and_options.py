"""MGF506 to MGF511, MGF701 and MGF702: what a declaration or a value becomes. Nothing here imports JAX."""

import re

import pytest
from proposals import proposed

from mgpu_fix.catalogue import NoFix
from mgpu_fix.levels import Applicability

HEAD = (
    "import functools\nimport jax\nimport jax.numpy as jnp\nfrom jax import lax\n"
    "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import mosaic_gpu as plgpu\n"
)
SAFE, UNSAFE = Applicability.SAFE, Applicability.UNSAFE
#: safe where numbers prove it
PROVEN = "proven"
WGMMA = ("ValueError", "When WGMMA lhs is passed in as a ref, it must be transformed by swizzling and tiling.")
AXIS = ("NameError", "Found an unbound axis name: row. To fix this, please call axis_index under `jax.shard_map`.")
STEPS = ("ValueError", "max_concurrent_steps must be greater than all delay_release values, but "
         "max_concurrent_steps=2 and delay_release_levels=[0, 3].")  # fmt: skip
MODE = ("NotImplementedError", "pl.BlockSpec with pipeline_mode= is not supported")
COLLECTIVE = ("NotImplementedError", "pl.BlockSpec with collective_axes= is not supported")
UNROLL = ("NotImplementedError", "``unroll`` must divide ``length``, got unroll=6 and length=8")
PROFILE = ("ValueError", "Either both profile_space and profile_dir must be set, or neither.")
IOTA = ("RuntimeError", "Failed to infer the output layout of the iota. Please apply plgpu.layout_cast.")
PLAN = ("TransferPlanDerivationError", "GMEM transfer does not access a whole number of complete 32 byte sectors")


def transforms(width: int, swizzle: int) -> str:
    return f"transforms=(plgpu.TilingTransform((8, {width})), plgpu.SwizzleTransform({swizzle}))"


MULTIPLY = "def body(x, o, a, b):\n    plgpu.wgmma(acc, a, b.T)\n"

CASES = {
    "operands in scratch": (
        WGMMA, "plgpu.wgmma",
        MULTIPLY + "k = plgpu.kernel(body, scratch_types=[plgpu.SMEM((64, 64), jnp.float16), "
        "plgpu.SMEM(s, jnp.float16)])",
        MULTIPLY + f"k = plgpu.kernel(body, scratch_types=[plgpu.SMEM((64, 64), jnp.float16, {transforms(64, 128)}), "
        f"plgpu.SMEM(s, jnp.float16, {transforms(64, 128)})])",
        SAFE,
    ),
    "operands with narrow rows": (
        WGMMA, "plgpu.wgmma",
        "@functools.partial(pl.run_scoped, a=plgpu.SMEM((64, 32), jnp.float16))\n"
        "def body(a):\n    plgpu.wgmma(acc, a, b)\n",
        f"@functools.partial(pl.run_scoped, a=plgpu.SMEM((64, 32), jnp.float16, {transforms(32, 64)}))\n"
        "def body(a):\n    plgpu.wgmma(acc, a, b)\n",
        SAFE,
    ),
    "the operand that lacks them": (
        WGMMA, "plgpu.wgmma",
        "def body(a, b):\n    plgpu.wgmma(acc, a, b)\n"
        "pl.run_scoped(body, plgpu.SMEM((64, 64), jnp.float32, transforms=t), plgpu.SMEM((64, 64), jnp.float32))",
        "def body(a, b):\n    plgpu.wgmma(acc, a, b)\n"
        "pl.run_scoped(body, plgpu.SMEM((64, 64), jnp.float32, transforms=t), "
        f"plgpu.SMEM((64, 64), jnp.float32, {transforms(32, 128)}))",
        SAFE,
    ),
    "the closest axis": (
        AXIS, "lax.axis_index",
        "i = lax.axis_index('row') + lax.axis_size('row')\nk = plgpu.kernel(f, grid_names=('rows', 'columns'))",
        "i = lax.axis_index('rows') + lax.axis_size('rows')\nk = plgpu.kernel(f, grid_names=('rows', 'columns'))",
        PROVEN,
    ),
    "the only axis that is free": (
        AXIS, "lax.axis_index",
        'i = lax.axis_index(("g", "row"))\nk = plgpu.kernel(f, grid_names=("g",), thread_name="wg")',
        'i = lax.axis_index(("g", "wg"))\nk = plgpu.kernel(f, grid_names=("g",), thread_name="wg")',
        PROVEN,
    ),
    "steps of a pipeline": (
        STEPS, "plgpu.emit_pipeline",
        "plgpu.emit_pipeline(f, max_concurrent_steps=2)(x)", "plgpu.emit_pipeline(f, max_concurrent_steps=4)(x)", SAFE,
    ),
    "steps of a pipeline with a name": (
        STEPS, "run(x)",
        "run = plgpu.emit_pipeline(f, grid=(4,))\nrun(x)",
        "run = plgpu.emit_pipeline(f, grid=(4,), max_concurrent_steps=4)\nrun(x)",
        SAFE,
    ),
    "modes of specs": (
        MODE, "plgpu.emit_pipeline",
        "spec = pl.BlockSpec((8,), f, pipeline_mode=pl.Buffered(2))\n"
        "plgpu.emit_pipeline(f, in_specs=[spec], out_specs=[pl.BlockSpec((8,), f, pipeline_mode=None)])(x)",
        "spec = pl.BlockSpec((8,), f)\nplgpu.emit_pipeline(f, in_specs=[spec], out_specs=[pl.BlockSpec((8,), f)])(x)",
        SAFE,
    ),
    "axes of specs": (
        COLLECTIVE, "plgpu.emit_pipeline",
        "plgpu.emit_pipeline(f, in_specs=[plgpu.BlockSpec((8,), f, collective_axes=('c',))])(x)",
        "plgpu.emit_pipeline(f, in_specs=[plgpu.BlockSpec((8,), f)])(x)",
        UNSAFE,
    ),
    "a loop": (UNROLL, "pl.loop", "pl.loop(0, 8, unroll=6)(f)", "pl.loop(0, 8, unroll=4)(f)", SAFE),
    "a profile": (
        PROFILE, "plgpu.CompilerParams", "p = plgpu.CompilerParams(profile_space=d, approx_math=True)",
        "p = plgpu.CompilerParams(approx_math=True)", SAFE,
    ),
    "numbers in a row": (
        IOTA, "jnp.arange", "y = x + jnp.arange(128)",
        "y = x + plgpu.layout_cast(jnp.arange(128), plgpu.Layout.WG_STRIDED((128,), vec_size=2))", SAFE,
    ),
    "numbers of a shape": (
        IOTA, "lax.broad", "y = lax.broadcasted_iota(jnp.int32, o.shape, 0)",
        "y = plgpu.layout_cast(lax.broadcasted_iota(jnp.int32, o.shape, 0), "
        "plgpu.Layout.WG_STRIDED(o.shape, vec_size=2))",
        SAFE,
    ),
    "a narrow load": (
        PLAN, "o[i]", "def k(o):\n    x = y + o[i].astype(y.dtype)",
        "def k(o):\n    x = y + plgpu.load(o.at[i], optimized=False).astype(y.dtype)", PROVEN,
    ),
    "a narrow store": (
        PLAN, "o[i]", "def k(o):\n    o[i] = x.astype(o.dtype)  # last",
        "def k(o):\n    plgpu.store(o.at[i], x.astype(o.dtype), optimized=False)  # last", PROVEN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_it_becomes(case: str) -> None:
    error, at, before, after, level = CASES[case]
    source, found = proposed(HEAD + before, at, *error)
    assert source.edited(found[0].edits).text == HEAD + after
    assert (PROVEN if found[0].needs_oracle else found[0].applicability) == level


def test_where_jax_names_no_transfer_each_is_tried_and_then_all() -> None:
    text = "def k(o, p):\n    o[0] = p[1] + x[0]\n    p[0] += 1\n    q[0] = z\n\n\ndef f(o):\n    o[0] = 1\n\n\nk(1)\n"
    source, found = proposed(HEAD + text, "k(1)", *PLAN, kernel="k")
    calls = [re.findall(r"plgpu\.\w+\(\w", source.edited(c.edits).text) for c in found]
    store, load = "plgpu.store(o", "plgpu.load(p"
    assert calls == [[store], [load], [store, load]]
    assert all(c.needs_oracle for c in found)


@pytest.mark.parametrize(
    ("error", "at", "text", "reason"),
    [
        (WGMMA, "plgpu.wgmma", MULTIPLY, "where the operands are declared is not found"),
        (
            WGMMA,
            "plgpu.wgmma",
            MULTIPLY
            + "plgpu.inline_mgpu(f)\nk = plgpu.kernel(body, scratch_types=[plgpu.SMEM(s, d), plgpu.SMEM(s, d)])",
            "inline_mgpu may rely",
        ),
        (
            WGMMA,
            "plgpu.wgmma",
            MULTIPLY
            + "k = plgpu.kernel(body, scratch_types=[plgpu.SMEM(s, d, transforms=t), plgpu.SMEM(s, d, **more)])",
            "or they have other transforms",
        ),
        (AXIS, "lax.axis_index", "lax.axis_index('row')\nk = plgpu.kernel(f, grid_names=('x', 'y'))", "named by x, y"),
        (AXIS, "lax.axis_index", "lax.axis_index(name)\nk = plgpu.kernel(f, grid_names=('rows',))", "has no axis row"),
        (STEPS, "plgpu.emit", "plgpu.emit_pipeline(f, max_concurrent_steps=n)(x)", "`n` must be at least 4"),
        (STEPS, "plgpu.emit", "plgpu.emit_pipeline(f, **options)(x)", "larger than every delay_release"),
        (STEPS, "run(x)", "run = make()\nrun(x)", "not made where it is run"),
        (MODE, "plgpu.emit", "plgpu.emit_pipeline(f, in_specs=specs)(x)", "drop pipeline_mode where"),
        (UNROLL, "pl.loop", "pl.loop(0, 8, **options)(f)", "must divide the number of steps"),
        (PROFILE, "plgpu.Comp", "plgpu.CompilerParams(**options)", "give both"),
        (PROFILE, "plgpu.Comp", "plgpu.CompilerParams(profile_dir=d)", "how many events fit"),
        (IOTA, "jnp.arange", "jnp.arange(2, 130)", "right where it is made"),
        (IOTA, "jnp.arange", "jnp.arange(next(sizes))", "right where it is made"),
        (IOTA, "jnp.arange", "plgpu.layout_cast(jnp.arange(128), plgpu.Layout.WGMMA)", "cast already"),
        (PLAN, "k(1)", "def k(o):\n    o[0], y = x\n\n\nk(1)", "optimized=False"),
    ],
)
def test_what_is_left(error: tuple[str, str], at: str, text: str, reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        proposed(HEAD + text, at, *error)
