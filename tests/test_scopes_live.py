"""Scopes under the probe: what is known of them, when sharing counts as meant, and what is left alone."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from mgpu_fix.account import Outcome
from mgpu_fix.catalogue import load
from mgpu_fix.engine import Engine
from mgpu_fix.model import Allocation, Axis, Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.problems import Options
from mgpu_fix.source import SourceFile

pytestmark = pytest.mark.live

HEAD = """\
import functools
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

x = jnp.arange(256, dtype=jnp.float32)
"""
#: a kernel with two warpgroups, whose scope is what comes after it
TWO = """
@functools.partial(plgpu.kernel, out_type=f32(256), num_threads=2, thread_name="wg"{more})
def kernel(x_ref, o_ref{refs}):
    wg = lax.axis_index("wg")
    mine, theirs = pl.ds(wg * 128, 128), pl.ds((1 - wg) * 128, 128)
"""
SCOPE = "    pl.run_scoped(body, plgpu.SMEM((256,), jnp.float32), collective_axes='g')\nkernel(x)\n"


def two(text: str, more: str = "", refs: str = "", scope: str = SCOPE) -> str:
    return TWO.format(more=more, refs=refs) + text.lstrip("\n") + scope


def repaired(observer: Observer, folder: Path, text: str, **options: bool) -> Outcome:
    script = folder / "kernel.py"
    script.write_text(HEAD + text)
    program = Program(str(script))

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    return Engine(run, load(), {str(script): SourceFile(str(script), script.read_bytes())}, Options(**options)).repair()


FIXED = {
    "each warpgroup has its part": two("""
    def body(smem):
        smem[mine] = x_ref[mine]
        o_ref[mine] = smem[mine]
"""),
    "parts are exchanged behind a barrier": two(
        """
    def body(smem):
        smem[mine] = x_ref[mine]
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)
        o_ref[mine] = smem[theirs]
""",
        ", scratch_types=[plgpu.Barrier(num_arrivals=2)]",
        ", barrier",
    ),
    "one loads, the other stores": two(
        """
    def body(smem, barrier):
        @pl.when(wg == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
        @pl.when(wg == 1)
        def _():
            plgpu.barrier_wait(barrier)
            o_ref[...] = smem[...]
""",
        scope=SCOPE.replace("SMEM((256,), jnp.float32)", "SMEM((256,), jnp.float32), plgpu.Barrier()"),
    ),
    "all load the same, each arrives": two(
        """
    def body(smem, barrier):
        plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
        plgpu.barrier_wait(barrier)
        o_ref[mine] = smem[mine]
""",
        scope=SCOPE.replace("SMEM((256,), jnp.float32)", "SMEM((256,), jnp.float32), plgpu.Barrier(num_arrivals=2)"),
    ),
    "in a loop": two(
        """
    @pl.loop(0, 3)
    def _(i):
        def body(smem):
            @pl.when(wg == 0)
            def _():
                smem[...] = x_ref[...] * i
                o_ref[...] = smem[...]
""",
        scope="    " + SCOPE,
    ),
    "in a condition that is the same for all": two(
        """
    @pl.when(jnp.abs(x_ref[3]) >= 0)
    def _():
        def body(smem):
            smem[mine] = x_ref[mine]
            o_ref[mine] = smem[mine]
""",
        scope="    " + SCOPE,
    ),
    "under jit": two(
        """
    def body(smem):
        smem[mine] = x_ref[mine]
        o_ref[mine] = smem[mine]
""",
        scope=SCOPE.replace("kernel(x)", "jax.jit(kernel)(x)"),
    ),
}


@pytest.mark.parametrize("text", FIXED.values(), ids=FIXED)
def test_sharing_that_was_meant(observer: Observer, tmp_path: Path, text: str) -> None:
    outcome = repaired(observer, tmp_path, text)
    assert not outcome.remaining, outcome.remaining
    [fixed] = outcome.texts.values()
    assert fixed.text == HEAD + text.replace("collective_axes='g'", 'collective_axes="wg"')
    assert [fix.verified_by for fix in outcome.fixes] == ["interpreter"]


#: what racing warpgroups compute may be seen to change from run to run
RACES = "use the same memory with nothing to order them|two runs of the kernel give different numbers"
LEFT = {
    "scratch of each warpgroup's own": (
        two("""
    def body(smem):
        smem[pl.ds(0, 128)] = x_ref[mine]
        o_ref[mine] = smem[pl.ds(0, 128)]
"""),
        RACES,
    ),
    "scratch of its own, one after the other": (
        two(
            """
    def body(smem):
        for i in range(2):
            @pl.when(wg == i)
            def _():
                smem[...] = x_ref[...] * (i + 1)
            plgpu.barrier_arrive(barriers.at[i])
            plgpu.barrier_wait(barriers.at[i])
        o_ref[mine] = smem[mine]
""",
            ", scratch_types=[plgpu.Barrier(num_arrivals=2, num_barriers=2)]",
            ", barriers",
        ),
        "if each warpgroup had memory of its own it would compute something else",
    ),
    "nothing orders a load behind its store": (
        two("""
    def body(smem):
        @pl.when(wg == 0)
        def _():
            smem[...] = x_ref[...]
        @pl.when(wg == 1)
        def _():
            o_ref[...] = smem[...]
"""),
        RACES,
    ),
    "not all come by": (
        two(
            """
    @pl.when(wg == 0)
    def _():
        def body(smem):
            smem[...] = x_ref[...]
            o_ref[...] = smem[...]
""",
            scope="    " + SCOPE,
        ),
        "not all warpgroups reach",
    ),
    "not all come by as often": (
        two(
            """
    @pl.loop(0, wg + 1)
    def _(i):
        def body(smem):
            o_ref[mine] = x_ref[mine]
""",
            scope="    " + SCOPE,
        ),
        "not all warpgroups reach",
    ),
    "a barrier of each warpgroup's own": (
        two(
            """
    def body(smem, barrier):
        plgpu.copy_gmem_to_smem(x_ref.at[mine], smem.at[mine], barrier)
        plgpu.barrier_wait(barrier)
        o_ref[mine] = smem[mine]
""",
            scope=SCOPE.replace("SMEM((256,), jnp.float32)", "SMEM((256,), jnp.float32), plgpu.Barrier()"),
        ),
        "cannot be shared with its num_arrivals",
    ),
    "sums over the grid": (
        """
@functools.partial(plgpu.kernel, out_type=f32(256), grid=(4,), grid_names=("k",))
def kernel(x_ref, o_ref):
    def body(total):
        @pl.when(lax.axis_index("k") == 0)
        def _():
            total[...] = jnp.zeros((256,), jnp.float32)
        total[...] += x_ref[...]
        o_ref[...] = total[...]
    pl.run_scoped(body, plgpu.SMEM((256,), jnp.float32), collective_axes="k")
kernel(x)
""",
        "depends on memory that nothing wrote",
    ),
    "a helper of kernels with different thread axes": (
        """
def helper(x_ref, o_ref):
    def body(smem):
        o_ref[...] = x_ref[...]
    pl.run_scoped(body, plgpu.SMEM((256,), jnp.float32), collective_axes="g")
for name in ("a", "b"):
    plgpu.kernel(helper, out_type=f32(256), num_threads=1, thread_name=name)(x)
""",
        "kernels with different thread axes: `a` and `b`",
    ),
}


@pytest.mark.parametrize(("text", "reason"), LEFT.values(), ids=LEFT)
def test_what_may_not_have_been_meant_is_left(observer: Observer, tmp_path: Path, text: str, reason: str) -> None:
    outcome = repaired(observer, tmp_path, text)
    assert not outcome.fixes
    assert [fixed.text for fixed in outcome.texts.values()] == [HEAD + text]
    assert re.search(reason, outcome.remaining[0].reason)


def test_unsafe_fixes_are_made_when_asked_for(observer: Observer, tmp_path: Path) -> None:
    text, _ = LEFT["scratch of its own, one after the other"]
    outcome = repaired(observer, tmp_path, text, unsafe=True)
    assert [fix.applicability for fix in outcome.fixes] == ["unsafe"]
    assert 'collective_axes="wg"' in next(iter(outcome.texts.values())).text


def test_a_kernel_that_races_has_no_safe_fix_by_any_rule(observer: Observer, tmp_path: Path) -> None:
    text = """
@pl.kernel(out_type=f32(256), mesh=plgpu.Mesh(num_threads=2, thread_name="wg"))
def kernel(x_ref, o_ref):
    wg = lax.axis_index("wg")
    def body(smem):
        smem[...] = x_ref[...] + wg
        return smem[...]
    return pl.run_scoped(body, plgpu.SMEM((256,), jnp.float32), collective_axes="wg")
kernel(x)
"""
    outcome = repaired(observer, tmp_path, text)
    assert not outcome.fixes
    assert outcome.remaining[0].code == "MGF401"
    assert "is not safe" in outcome.remaining[0].reason


def test_what_is_known_of_scopes(observer: Observer, tmp_path: Path) -> None:
    text = """
@functools.partial(plgpu.kernel, out_type=f32(256), grid=(2,), grid_names=("g",), num_threads=2, thread_name="wg",
                   scratch_types=[plgpu.SMEM((8,), jnp.float32)])
def kernel(x_ref, o_ref, scratch):
    def healthy(smem):
        @pl.when(lax.axis_index("wg") == 1)
        def _():
            smem[...] = x_ref[...]
            o_ref[...] = smem[...]
    pl.run_scoped(healthy, plgpu.SMEM((256,), jnp.float32), collective_axes="wg")
    @pl.with_scoped(plgpu.SMEM((8,), jnp.float32), semaphore=plgpu.SemaphoreType.REGULAR, collective_axes=["g", "wg"])
    def scoped(x, smem, semaphore):
        smem[...] = jnp.zeros((8,), jnp.float32)
    scoped(x_ref)
kernel(x)
"""
    script = tmp_path / "kernel.py"
    script.write_text(HEAD + text)
    seen = observer.observe(Program(str(script)))
    [failure] = seen.failures
    first, second = failure.facts.scopes
    assert (first.accepted, first.axes, first.thread) == (True, (Axis("wg", 2),), Axis("wg", 2))
    assert first.allocations == (Allocation("", "smem", confined=True),)
    assert (second.accepted, second.axes, second.diverges) == (False, (Axis("g", 2), Axis("wg", 2)), False)
    assert second.allocations == (Allocation("", "smem"), Allocation("semaphore", "semaphore", confined=True))
    assert script.read_text().splitlines()[second.span.line - 1].strip() == "scoped(x_ref)"
    assert failure.span == second.span


def test_a_semaphore_has_no_place_in_what_jax_raises(observer: Observer, tmp_path: Path) -> None:
    text = """
@functools.partial(plgpu.kernel, out_type=f32(256), grid=(1,), grid_names=("g",))
def kernel(x_ref, o_ref):
    def body(semaphore):
        o_ref[...] = x_ref[...]
    pl.run_scoped(body, plgpu.SemaphoreType.REGULAR, collective_axes="g")

kernel(x)
"""
    outcome = repaired(observer, tmp_path, text)
    assert [fixed.text for fixed in outcome.texts.values()] == [HEAD + text.replace(', collective_axes="g"', "")]
    assert outcome.fixes[0].line == len(HEAD.splitlines()) + 6
