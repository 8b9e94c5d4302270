"""Kernels in which one error occurs several times, of which JAX tells one: all are mended, and proven together."""

from pathlib import Path

import pytest
from test_regions_live import repaired

from mgpu_fix.observe import Observer

pytestmark = pytest.mark.live

#: code of the rule, how often it answers, the program; whether numbers of warp-level regions or of TMEM prove it
PROGRAMS = {
    "loops": (
        "MGF510",
        2,
        """
ROWS = jax.ShapeDtypeStruct((10, 128), jnp.float32)
@plgpu.kernel(out_type=ROWS)
def kernel(x_ref, o_ref):
    @pl.loop(0, 10, unroll=4)
    def _(row):
        o_ref[row] = x_ref[row] * 2
    @pl.loop(0, 10, unroll=4)
    def _(row):
        o_ref[row] = o_ref[row] + x_ref[row]
kernel(jnp.arange(1280, dtype=jnp.float32).reshape(10, 128))""",
        "",
    ),
    "pipelines": (
        "MGF508",
        2,
        """
ROWS = jax.ShapeDtypeStruct((64, 128), jnp.float32)
@plgpu.kernel(out_type=(ROWS, ROWS))
def kernel(x_gmem, a_gmem, b_gmem):
    def double(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2
    def add(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] + 1
    plgpu.emit_pipeline(
        double, grid=(4,), in_specs=[plgpu.BlockSpec((16, 128), lambda i: (i, 0), delay_release=2)],
        out_specs=[plgpu.BlockSpec((16, 128), lambda i: (i, 0))], max_concurrent_steps=2,
    )(x_gmem, a_gmem)
    plgpu.emit_pipeline(
        add, grid=(4,), in_specs=[plgpu.BlockSpec((16, 128), lambda i: (i, 0), delay_release=2)],
        out_specs=[plgpu.BlockSpec((16, 128), lambda i: (i, 0))], max_concurrent_steps=2,
    )(x_gmem, b_gmem)
kernel(jnp.arange(64 * 128, dtype=jnp.float32).reshape(64, 128))""",
        "",
    ),
    "barriers": (
        "MGF502",
        2,
        """
@plgpu.kernel(out_type=F, scratch_types=dict(first=plgpu.Barrier(), second=plgpu.Barrier()))
def kernel(x_ref, o_ref, first, second):
    plgpu.tcgen05_commit_arrive(first)
    plgpu.barrier_wait(first)
    plgpu.tcgen05_commit_arrive(second)
    plgpu.barrier_wait(second)
    o_ref[...] = x_ref[...] * 2
kernel(x)""",
        "",
    ),
    "scratch": (
        "MGF504",
        2,
        """
@plgpu.kernel(
    out_type=F,
    scratch_types=[plgpu.SMEM((128,), jnp.float32, packed=True), plgpu.SMEM((128,), jnp.float32, packed=True)],
)
def kernel(x_ref, o_ref, a, b):
    a[...] = x_ref[...] * 2
    b[...] = a[...] + 1
    o_ref[...] = b[...]
kernel(x)""",
        "",
    ),
    "stores of other dtypes": (
        "MGF403",
        1,
        """
@plgpu.kernel(out_type=(F, F))
def kernel(x_ref, a_ref, b_ref):
    a_ref[...] = (x_ref[...] * 2).astype(jnp.bfloat16)
    b_ref[...] = (x_ref[...] + 1).astype(jnp.bfloat16)
kernel(x)""",
        "",
    ),
    "copies": (
        "MGF404",
        2,
        """
@plgpu.kernel(
    out_type=(F, F), scratch_types=[plgpu.SMEM((256,), jnp.float32), plgpu.SMEM((256,), jnp.float32), plgpu.Barrier()]
)
def kernel(x_ref, a_ref, b_ref, s, t, barrier):
    plgpu.copy_gmem_to_smem(x_ref, s, barrier)
    plgpu.barrier_wait(barrier)
    a_ref[...] = s[pl.ds(0, 128)] * 2
    plgpu.copy_gmem_to_smem(x_ref, t, barrier)
    plgpu.barrier_wait(barrier)
    b_ref[...] = t[pl.ds(0, 128)] + 1
def example_args():
    return (x,)
def reference(x):
    return x * 2, x + 1""",
        "",
    ),
    "tensor memory": (
        "MGF503",
        1,
        """
ROWS = jax.ShapeDtypeStruct((128, 128), jnp.float32)
@plgpu.kernel(out_type=ROWS, scratch_types=[plgpu.TMEM((128, 128), jnp.float32), plgpu.TMEM((128, 128), jnp.float32)])
def kernel(x_ref, o_ref, s, t):
    s[...] = plgpu.load(x_ref, layout=plgpu.Layout.TCGEN05, optimized=False)
    t[...] = s[...] * 2
    o_ref[...] = t[...]
kernel(jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128))""",
        "tmem",
    ),
    "tensor memory, and a layout for it": (
        "MGF503",
        2,
        """
ROWS = jax.ShapeDtypeStruct((128, 128), jnp.float32)
LANE = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)
@plgpu.kernel(out_type=ROWS, scratch_types=[plgpu.TMEM((128, 128), jnp.float32)], compiler_params=LANE)
def kernel(x_ref, o_ref, s):
    value = x_ref[...] * 2
    s[...] = value
    o_ref[...] = s[...]
kernel(jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128))""",
        "tmem",
    ),
    "warp-level regions": (
        "MGF101",
        1,
        """
@plgpu.kernel(out_type=(F, F))
def kernel(x_ref, a_ref, b_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            a_ref[...] = x_ref[...] * 2
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 1)
        def _():
            b_ref[...] = x_ref[...] + 1
kernel(x)""",
        "warps",
    ),
}


@pytest.mark.parametrize(("code", "times", "text", "needs"), PROGRAMS.values(), ids=PROGRAMS)
def test_each_of_them_is_mended(
    code: str, times: int, text: str, needs: str, observer: Observer, tmp_path: Path
) -> None:
    outcome, _ = repaired(text, observer, tmp_path)
    if needs and not observer.capabilities["warps"] and not outcome.fixes:
        return
    assert not outcome.remaining
    assert [fix.code for fix in outcome.fixes] == [code] * times
