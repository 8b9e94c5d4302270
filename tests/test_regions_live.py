"""Warp-level regions that are easy to move or to loop over wrongly: each is left, or becomes what is right."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mgpu_fix.account import Outcome
from mgpu_fix.catalogue import load
from mgpu_fix.engine import Engine
from mgpu_fix.model import Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.source import SourceFile

pytestmark = pytest.mark.live

HEAD = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

F = jax.ShapeDtypeStruct((128,), jnp.float32)
I = jax.ShapeDtypeStruct((1,), jnp.int32)
x = jnp.linspace(-1, 1, 128, dtype=jnp.float32)
wide = jnp.arange(256, dtype=jnp.float32)
WARPGROUP = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup)
"""

LEFT = {
    "parameters of the region's own": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    s = 2.0
    o_ref[...] = x_ref[...] * s
    @plgpu.warp_map
    def _(warp_id, s=3.0):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...]) * s
kernel(x)""",
    "parameters of the region's own, where it would be split": """
@plgpu.kernel(
    out_type=F, scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()), compiler_params=WARPGROUP
)
def kernel(x_ref, o_ref, smem, barrier):
    s = 2.0
    @plgpu.warp_map
    def _(warp_id, s=3.0):
        @pl.when(warp_id == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
            plgpu.barrier_wait(barrier)
            o_ref[...] = jnp.exp(smem[...]) * s
kernel(x)""",
    "stores on the line that names the warp": """
@plgpu.kernel(out_type=(F, I))
def kernel(x_ref, o_ref, c_ref):
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _():
        warp = lax.axis_index("warp"); c_ref[0] = 1
        @pl.when(warp == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])
kernel(x)""",
    "the warp's number is another number": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    @plgpu.warp_map
    def _(warp_id):
        warp_id = warp_id % 2
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] += jnp.exp(x_ref[...])
kernel(x)""",
    "a helper that no warp calls": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    @plgpu.warp_map
    def _(warp_id):
        def helper():
            o_ref[...] = jnp.exp(x_ref[...])
        @pl.when(warp_id == 4)
        def _():
            helper()
kernel(x)""",
    "a number read before it is stored": """
@plgpu.kernel(out_type=(F, I), compiler_params=WARPGROUP)
def kernel(x_ref, o_ref, c_ref):
    c_ref[0] = 0
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            before = c_ref[0]
            c_ref[0] = 9
            o_ref[...] = jnp.exp(x_ref[...]) * before.astype(jnp.float32)
kernel(x)""",
    "one warp stores what another reads": """
@plgpu.kernel(out_type=(F, F))
def kernel(x_ref, o_ref, p_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])
        @pl.when(warp_id == 1)
        def _():
            p_ref[...] = jnp.exp(o_ref[...])
kernel(x)""",
    "all warps store different values to one place": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        o_ref[...] = jnp.exp(x_ref[...]) * warp_id
kernel(x)""",
    "the kernel has a name for something else that the warp's number would take": """
@plgpu.kernel(out_type=(jax.ShapeDtypeStruct((512,), jnp.float32), jax.ShapeDtypeStruct((4, 128), jnp.float32)))
def kernel(x_ref, n_ref, o_ref, p_ref):
    w = n_ref[0]
    p_ref[...] = jnp.zeros((4, 128), jnp.float32)
    @plgpu.warp_map
    def _(w):
        part = pl.ds(w * 128, 128)
        o_ref[part] = jnp.exp(x_ref[part])
    p_ref[w] = x_ref[pl.ds(0, 128)]
kernel(jnp.linspace(0, 1, 512), jnp.array([3]))""",
}

#: what must stand in the repaired kernel, under which JAX can prove it
RIGHT = {
    "names of the region's functions stay apart": (
        """
@plgpu.kernel(out_type=(F, F))
def kernel(x_ref, a_ref, b_ref):
    @plgpu.warp_map
    def _(warp_id):
        v = jnp.exp(x_ref[...])
        @pl.when(warp_id == 0)
        def _():
            v = jnp.tanh(x_ref[...])
            a_ref[...] = v
        @pl.when(warp_id == 1)
        def _():
            b_ref[...] = v
kernel(x)""",
        "v3 = jnp.tanh(x_ref[...])\n    a_ref[...] = v3\n    b_ref[...] = v2\n",
    ),
    "and stays and": (
        """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    tiles, tail = 2, 1
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(tiles and tail and warp_id == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])
kernel(x)""",
        "@pl.when((tiles) and (tail))",
    ),
    "another name of the warp's number is no condition": (
        """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    w = jnp.int32(1)
    @plgpu.warp_map
    def _(warp_id):
        w = warp_id
        @pl.when(w == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])
kernel(x)""",
        "w = jnp.int32(1)\n    o_ref[...] = jnp.exp(x_ref[...])\n",
    ),
    "a counter stays with its warp": (
        """
@plgpu.kernel(out_type=(F, I), compiler_params=WARPGROUP)
def kernel(x_ref, o_ref, c_ref):
    c_ref[0] = 0
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])
            c_ref[0] = c_ref[0] + 1
kernel(x)""",
        "        @pl.when(warp_id == 0)\n        def _():\n            c_ref[0] = c_ref[0] + 1\n",
    ),
    "a slice that may count from the end is not added to": (
        """
LAST = -128
@plgpu.kernel(out_type=F)
def kernel(y_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = y_ref[LAST:] + 1.0
kernel(wide)""",
        "\n    o_ref[...] = y_ref[LAST:] + 1.0\n",
    ),
    "a number that fills stays weakly typed": (
        """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.int32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = (x_ref[...] + jnp.full((128,), 100)).astype(jnp.int32)
kernel((jnp.arange(128) % 20).astype(jnp.int8))""",
        "o_ref[i] = (x_ref[i] + 100).astype(jnp.int32)",
    ),
    "stores that overlap keep their order": (
        """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((192,), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[pl.ds(0, 128)] = x_ref[...] * 2
            o_ref[pl.ds(64, 128)] = x_ref[...] * 3
kernel(x)""",
        "o_ref[i] = x_ref[i] * 2\n            @pl.loop(0, 128)\n            def _(i):\n                o_ref[64 + i]",
    ),
    "a kernel made for any shape stays so": (
        """
def double(x):
    def body(x_ref, o_ref):
        @plgpu.warp_map
        def _(warp_id):
            @pl.when(warp_id == 0)
            def _():
                o_ref[...] = x_ref[...] * 2
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
double(x)""",
        "@pl.loop(0, o_ref.shape[0])",
    ),
    "a kernel that is declared elsewhere may be called with any shape": (
        """
def body(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = x_ref[...] * 2
plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)""",
        "@pl.loop(0, o_ref.shape[0])",
    ),
    "a slice says how far it goes": (
        """
def body(x_ref, o_ref):
    n = o_ref.shape[0] // 4
    @plgpu.warp_map
    def _(w):
        mine = pl.ds(w * n, n)
        o_ref[mine] = x_ref[mine] + 1
plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)""",
        "@pl.loop(0, n)",
    ),
    "a row of a Ref": (
        """
def body(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        o_ref[w] = x_ref[w] * 3
plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4, 32), x.dtype))(x.reshape(4, 32))""",
        "@pl.loop(0, o_ref.shape[1])",
    ),
    "the end of a row": (
        """
def body(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        o_ref[0, w, :] = x_ref[0, w, :] * 3
plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((1, 4, 32), x.dtype))(x.reshape(1, 4, 32))""",
        "@pl.loop(0, o_ref.shape[2])",
    ),
    "a size that has a name": (
        """
N = 128
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[pl.ds(0, N)] = x_ref[...] * 2
kernel(x)""",
        "@pl.loop(0, N)",
    ),
    "sizes that are written out where the kernel is": (
        """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = x_ref[...] * 2
kernel(x)""",
        "@pl.loop(0, 128)",
    ),
    "two warpgroups that take turns often, and a copy that nothing commits": (
        """
@plgpu.kernel(
    out_type=F, num_threads=2, thread_name="wg",
    scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier(num_arrivals=2)), compiler_params=WARPGROUP,
)
def kernel(x_ref, o_ref, smem, barrier):
    wg = lax.axis_index("wg")
    @pl.when(wg == 0)
    def _():
        @plgpu.warp_map
        def _(warp_id):
            @pl.when(warp_id == 0)
            def _():
                smem[...] = jnp.zeros_like(smem)
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)
    @pl.when(wg == 1)
    def _():
        @pl.loop(0, 400)
        def _(i):
            smem[...] += x_ref[...]
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)
    @pl.when(wg == 0)
    def _():
        plgpu.copy_smem_to_gmem(smem, o_ref)
        plgpu.wait_smem_to_gmem(0)
kernel(x)""",
        "    def _():\n        smem[...] = jnp.zeros_like(smem)\n",
    ),
    "the bits of a whole number, and powers of what costs nothing": (
        """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4,), jnp.int32), compiler_params=WARPGROUP)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(w):
        v = x_ref[w]
        o_ref[w] = ~v + (-v) ** 2
kernel(jnp.arange(4))""",
        "o_ref[w] = (v ^ -1) + ((0 - v) * (0 - v))",
    ),
    "the negative of zero": (
        """
@plgpu.kernel(out_type=F, compiler_params=WARPGROUP)
def kernel(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = 1.0 / -x_ref[...]
kernel(x)""",
        "o_ref[i] = 1.0 / (x_ref[i] * -1)",
    ),
}


def repaired(text: str, observer: Observer, folder: Path) -> tuple[Outcome, str]:
    path = str(folder / "kernel.py")
    Path(path).write_text(HEAD + text + "\n")
    program = Program(path)

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    outcome = Engine(run, load(), {path: SourceFile(path, Path(path).read_bytes())}).repair()
    return outcome, outcome.texts[path].text


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_it_is_left(text: str, observer: Observer, tmp_path: Path) -> None:
    outcome, after = repaired(text, observer, tmp_path)
    assert not outcome.fixes
    assert after == HEAD + text + "\n"
    assert all(item.reason for item in outcome.remaining)


@pytest.mark.parametrize(("text", "right"), RIGHT.values(), ids=RIGHT)
def test_it_becomes_what_is_right(text: str, right: str, observer: Observer, tmp_path: Path) -> None:
    outcome, after = repaired(text, observer, tmp_path)
    if right not in after:
        # Without numbers for warp-level regions no loop is safe: it is moved out as a whole, or left.
        assert not observer.capabilities["warps"]
        assert "warp_map" not in after or not outcome.fixes
