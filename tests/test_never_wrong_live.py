"""Kernels whose meaning cannot be told: a fix of them would be a guess, so they are left, with a reason."""

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
x = jnp.arange(128, dtype=jnp.float32)
"""

LEFT = {
    "a sum that is kept in a narrower output": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.bfloat16))
def kernel(x_ref, o_ref):
    o_ref[...] = jnp.zeros((128,), jnp.bfloat16)
    @pl.loop(0, 8)
    def _(i):
        total = o_ref[...]
        total = total + x_ref[i]
        o_ref[...] = total
kernel(jnp.ones((8, 128), jnp.float32))""",
    "what a pipeline's body returns is not what it stored": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32))
def kernel(x_gmem, o_gmem):
    def body(idx, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2
        return True
    spec = plgpu.BlockSpec((128,), lambda i: (i,))
    plgpu.emit_pipeline(body, grid=(2,), in_specs=[spec], out_specs=[spec])(x_gmem, o_gmem)
kernel(jnp.arange(256, dtype=jnp.float32))""",
    "a pipeline's body stores one thing and returns another": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32))
def kernel(x_gmem, o_gmem):
    def body(idx, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2
        return x_smem[...]
    spec = plgpu.BlockSpec((128,), lambda i: (i,))
    plgpu.emit_pipeline(body, grid=(2,), in_specs=[spec], out_specs=[spec])(x_gmem, o_gmem)
kernel(jnp.arange(256, dtype=jnp.float32))""",
    "the output is staged, the result returned": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    return o_ref[...] * 2
kernel(x)""",
    "half of the output is stored, all of it returned": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32))
def kernel(x_ref, o_ref):
    y = x_ref[...] * 2
    o_ref[pl.ds(0, 128)] = x_ref[pl.ds(0, 128)]
    return y
kernel(jnp.arange(256, dtype=jnp.float32))""",
    "inputs that are all zero hide the difference": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.int32))
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    return x_ref[...] * 2
kernel(jnp.zeros(128, jnp.int32))""",
    "one of two leaves of an output is stored": """
@plgpu.kernel(out_type={"a": F, "b": F})
def kernel(x_ref, outs):
    outs["a"][...] = x_ref[...] + 1
    return {"a": x_ref[...] + 1, "b": x_ref[...] * 2}
kernel(x)""",
    "each block returns its own number": """
@pl.kernel(out_type=F, mesh=plgpu.Mesh(grid=(128,), grid_names=("i",)))
def kernel(x_ref, o_ref):
    return x_ref[lax.axis_index("i")] * 2
kernel(x)""",
    "each warpgroup returns its own array": """
@plgpu.kernel(out_type=F, num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    return x_ref[...] * (lax.axis_index("wg") + 1).astype(jnp.float32)
kernel(x)""",
    "each block returns its own row": """
@pl.kernel(out_type=F, mesh=plgpu.Mesh(grid=(2,), grid_names=("row",)))
def kernel(x_ref, o_ref):
    return x_ref[lax.axis_index("row")] * 2
kernel(jnp.arange(256, dtype=jnp.float32).reshape(2, 128))""",
    "what the warps return is stored nowhere": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((4,), jnp.int32))
def kernel(o_ref):
    @plgpu.warp_map
    def per_warp(w):
        return w * 10
kernel()""",
    "what the warps return may have been meant for what is stored before": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...]
    @plgpu.warp_map
    def per_warp(w):
        return x_ref[w] * 2
kernel(x)""",
    "what a condition returns was meant for a part that nobody stores": """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((256,), jnp.float32), scratch_types=[plgpu.SMEM((128,), jnp.float32)])
def kernel(x_ref, o_ref, smem):
    o_ref[pl.ds(0, 128)] = x_ref[...]
    @pl.when(x_ref[0] < 2)
    def _():
        smem[...] = x_ref[...] * 2
        return smem[...]
kernel(x)""",
    "a number that each step of a loop computes": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    @pl.loop(0, 128)
    def _(i):
        o_ref[...] = x_ref[i] * 2
kernel(x)""",
    "a number that each step of Python's loop computes": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    for i in range(8):
        o_ref[...] = x_ref[i] * 2
kernel(x)""",
    "a number that each block computes": """
@plgpu.kernel(out_type=F, grid=(128,), grid_names=("i",))
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[lax.axis_index("i")] * 2
kernel(x)""",
    "each block, by its place in two axes, returns its own number": """
@plgpu.kernel(out_type=F, grid=(2, 2), grid_names=("a", "b"))
def kernel(x_ref, o_ref):
    return x_ref[...] * lax.axis_index(("a", "b")).astype(jnp.float32)
kernel(x)""",
    "two conditions return a value for one output": """
@plgpu.kernel(out_type=F, num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    wg = lax.axis_index("wg")
    @pl.when(wg == 0)
    def _():
        return x_ref[...] * 2
    @pl.when(wg == 1)
    def _():
        return x_ref[...] * 3
kernel(x)""",
    "each warpgroup for which a condition holds returns its own": """
@plgpu.kernel(out_type=F, num_threads=2, thread_name="wg")
def kernel(x_ref, o_ref):
    wg = lax.axis_index("wg")
    @pl.when(x_ref[0] < 1)
    def _():
        return x_ref[...] * (wg + 1).astype(jnp.float32)
kernel(x)""",
    "a condition that does not hold returns a value": """
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    @pl.when(x_ref[0] > 1)
    def _():
        return x_ref[...] * 2
kernel(x)""",
    "another Ref has the output's name where a condition returns a value": """
def helper(x_ref, o_ref):
    @pl.when(x_ref[0] < 1)
    def _():
        return x_ref[...] * 2
@plgpu.kernel(out_type=F, scratch_types=[plgpu.SMEM((128,), jnp.float32)])
def kernel(x_ref, o_ref, smem):
    helper(x_ref, smem)
    o_ref[...] = smem[...]
kernel(x)""",
    "there is no output at all": """
def body(x_ref, y_ref):
    return x_ref[...] * 2
y = jax.new_ref(jnp.zeros_like(x))
pl.kernel(body, out_type=(), mesh=plgpu.Mesh())(x, y)""",
    "one of two outputs is written by nobody": """
@plgpu.kernel(out_type=(F, F))
def kernel(x_ref, o_ref, aux_ref):
    o_ref[...] = x_ref[...] * 2
    return o_ref
kernel(x)""",
    "the body is called for its value, too": """
def double(x_ref, o_ref):
    return x_ref[...] * 2
OPS = {"double": double}
pl.kernel(double, out_type=F, mesh=plgpu.Mesh())(x)
print(OPS["double"](np.ones(128, np.float32), None))""",
    "the program's own check says that something else is meant": """
@pl.kernel(out_type=F, mesh=plgpu.Mesh())
def kernel(x_ref, o_ref):
    return x_ref[...] * 2
np.testing.assert_allclose(kernel(x), x * 3)""",
}


def repaired(observer: Observer, folder: Path, text: str) -> Outcome:
    script = folder / "program.py"
    script.write_text(HEAD + text + "\n")
    program = Program(str(script))

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    source = SourceFile(str(script), script.read_bytes())
    return Engine(run, load(), {str(script): source}).repair()


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_it_is_left_with_a_reason(observer: Observer, tmp_path: Path, text: str) -> None:
    outcome = repaired(observer, tmp_path, text)
    assert outcome.first.failures
    assert [t.data for t in outcome.texts.values()] == [(HEAD + text + "\n").encode()]
    assert not outcome.fixes
    assert all(r.reason for r in outcome.remaining)


def test_a_return_that_adds_nothing_is_deleted_once_numbers_say_so(observer: Observer, tmp_path: Path) -> None:
    text = """
def store(ref, value):
    ref[...] = value
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    y = x_ref[...] * 2
    store(o_ref, y)
    return y
assert kernel(x)[3] == 6"""
    outcome = repaired(observer, tmp_path, text)
    [fix] = outcome.fixes
    assert fix.verified_by.value == "interpreter"
    assert "return" not in next(iter(outcome.texts.values())).text


def test_a_kernel_reads_the_program_as_it_is_when_it_is_called(observer: Observer, tmp_path: Path) -> None:
    text = """
CFG = {"k": 2.0}
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * CFG["k"]
kernel = plgpu.kernel(body, out_type=F)
assert kernel(x)[1] == 2
CFG["k"] = 3.0
assert kernel(x)[1] == 3"""
    outcome = repaired(observer, tmp_path, text)
    assert (outcome.first.status, outcome.first.failures) == ("ok", ()), outcome.first.output
