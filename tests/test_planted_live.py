"""Wrong fixes, planted: each is refused by every oracle that can see what is wrong with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mgpu_fix import golden, verify
from mgpu_fix.account import Outcome
from mgpu_fix.catalogue import Catalogue, Rule, Signature
from mgpu_fix.engine import Engine
from mgpu_fix.levels import VerifiedBy
from mgpu_fix.model import Candidate, Edit, Failure, Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.source import SourceFile

pytestmark = pytest.mark.live

PROGRAM = """\
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

F = jax.ShapeDtypeStruct((128,), jnp.float32)


@functools.partial(plgpu.kernel, out_type=(F, F))
def kernel(x_ref, a_ref, b_ref):
{body}

def truth(x):
    return x * 2, x + 1


kernel(jnp.{x})
"""
BROKEN = """\
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            a_ref[...] = x_ref[...] * 2
            b_ref[...] = x_ref[...] + 1
"""
RIGHT = """\
    a_ref[...] = x_ref[...] * 2
    b_ref[...] = x_ref[...] + 1
"""
LOOP = """\
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            @pl.loop(0, {})
            def _(i):
                a_ref[i] = x_ref[i] * 2
                b_ref[i] = x_ref[i] + 1
"""
WRONG = {
    "one element off": RIGHT.replace("* 2", "* 2 + jnp.where(x_ref[...] == 77.0, 0.5, 0.0)"),
    "off by a rounding": RIGHT.replace("* 2", "* 2.001"),
    "outputs swapped": RIGHT.replace("a_ref", "c_ref").replace("b_ref", "a_ref").replace("c_ref", "b_ref"),
    "a stale half": RIGHT.replace("x_ref[...] + 1", "x_ref[...]").replace(
        "    b_ref",
        "    b_ref[pl.ds(0, 64)] = x_ref[pl.ds(0, 64)] + 1\n    b_ref[pl.ds(64, 64)] = x_ref[pl.ds(64, 64)]\n#",
    ),
    "NaN": RIGHT.replace("* 2", "* 2 + jnp.sqrt(-1 - x_ref[...] * x_ref[...]) * 0"),
    "another dtype on the way": RIGHT.replace("* 2", "* 2").replace(
        "x_ref[...] + 1", "(x_ref[...] + 1).astype(jnp.bfloat16).astype(jnp.float32)"
    ),
    "a dropped store": RIGHT.replace("    b_ref[...] = x_ref[...] + 1\n", ""),
}
#: as WRONG, but only seen in numbers that the program itself does not have
ONLY_FOR_ZEROS = RIGHT.replace("x_ref[...] + 1", "x_ref[...] * 3 + 1")


class Plant(Rule):
    """Puts ``new`` in the place of ``old``, whatever fails."""

    code = name = "PLANT"
    jax = "any"
    signatures = tuple(Signature(kind, "") for kind in ("ValueError", "TypeError", "NotImplementedError"))

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        at = source.text.index(self.old)
        yield Candidate("plant", (Edit(at, at + len(self.old), self.new),), needs_oracle=True)


@dataclass
class Bench:
    """A program on the disk, and the engine on it."""

    observer: Observer
    folder: Path
    x: str = "arange(128, dtype=jnp.float32)"

    def planted(self, old: str, new: str, oracle: str, program: str = PROGRAM) -> Outcome:
        path = str(self.folder / "program.py")
        text = program.format(body=old, x=self.x).encode()
        Path(path).write_bytes(text)
        asked = Program(path, reference="truth" if oracle == "reference" else "")
        held = self.golden(path, program) if oracle == "golden" else None

        def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            return self.observer.observe(asked, texts, draws)

        sources = {path: SourceFile(path, text)}
        return Engine(run, Catalogue([Plant(old, new)]), sources, golden=held).repair()

    def golden(self, path: str, program: str) -> verify.Golden:
        """A golden of the right program."""
        texts = {path: program.format(body=RIGHT, x=self.x).encode()}
        first = self.observer.observe(Program(path), texts, ())
        again = self.observer.observe(Program(path), texts, tuple(c.key for c in first.calls))
        drafted = golden.draft(first, again, verify.compare_files)
        file = self.folder / "golden.npz"
        file.write_bytes(golden.dump(drafted, again, {}, verify.TOLERANCE))
        return golden.load(file, self.folder / "unpacked", None, None)

    def oracles(self) -> list[str]:
        """What can see: where the interpreter cannot run the original, nothing is to be had from that."""
        warps = self.observer.capabilities["warps"] if self.observer.jax else False
        return ["golden", "reference", *(["original"] if warps else [])]


@pytest.fixture
def bench(observer: Observer, tmp_path: Path) -> Bench:
    return Bench(observer, tmp_path)


def test_the_right_fix_is_taken_by_every_oracle(bench: Bench) -> None:
    for oracle in bench.oracles():
        outcome = bench.planted(BROKEN, RIGHT, oracle)
        assert len(outcome.fixes) == 1, (oracle, outcome.remaining)
        assert [k.oracle for k in outcome.kernels] == [oracle]
        assert outcome.fixes[0].verified_by is (VerifiedBy.GOLDEN if oracle == "golden" else VerifiedBy.INTERPRETER)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_fix_is_refused_by_every_oracle(name: str, bench: Bench) -> None:
    for oracle in bench.oracles():
        outcome = bench.planted(BROKEN, WRONG[name], oracle)
        assert not outcome.fixes, oracle
        [left] = outcome.remaining
        # JAX 0.10 has layouts to say no for, too.
        outcomes = " ".join(tried.outcome for tried in left.tried)
        assert "differ" in outcomes or "nothing writes to" in outcomes or "then stops with" in outcomes, outcomes


def test_right_for_zeros_is_not_right(bench: Bench) -> None:
    bench.x = "zeros(128, jnp.float32)"
    for oracle in bench.oracles():
        assert bench.planted(BROKEN, RIGHT, oracle).fixes, oracle
        outcome = bench.planted(BROKEN, ONLY_FOR_ZEROS, oracle)
        assert not outcome.fixes, oracle
        assert "differ" in outcome.remaining[0].tried[0].outcome


def test_an_element_that_nothing_stores_is_seen(bench: Bench) -> None:
    if not bench.observer.capabilities["warps"]:
        pytest.skip("this JAX does not interpret warp-level regions, so it gives no numbers of the fix")
    for oracle in bench.oracles():
        assert bench.planted(BROKEN, LOOP.format(128), oracle).fixes, oracle
        assert not bench.planted(BROKEN, LOOP.format(127), oracle).fixes, oracle


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (RIGHT.replace("* 2", "* 2 +"), "does not parse"),
        (RIGHT.replace("x_ref[...] * 2", "y_ref[...] * 2"), "kernel now stops at trace"),
        (RIGHT.replace("* 2", "@ x_ref[...]"), "kernel now stops at trace"),
        (RIGHT + "    raise SystemExit(3)\n", "kernel now stops at trace"),
        (RIGHT + "    import os; os._exit(3)\n", "the program then fails to run: it ended the interpreter with code 3"),
        (RIGHT + "\n\nkernel = lambda x: x\n", "kernel is no longer called"),
    ],
)
def test_a_fix_that_breaks_the_program_is_refused(wrong: str, reason: str, bench: Bench) -> None:
    outcome = bench.planted(BROKEN, wrong, "golden")
    assert not outcome.fixes
    assert reason in outcome.remaining[0].tried[0].outcome


CAPTURED = """\
import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

F = jax.ShapeDtypeStruct((128,), jnp.float32)
W = jnp.arange(128, dtype=jnp.float32)


@plgpu.kernel(out_type=F)
def _kernel(x_ref, w_ref, o_ref):
    o_ref[...] = x_ref[...] + w_ref[...]


{body}

def example_args():
    return (jnp.{x},)


def reference(x):
    return x * 2
"""
#: what it means is x + W, which for the program's own x is what the reference says
CLOSED = """\
@plgpu.kernel(out_type=F)
def kernel(x_ref, o_ref):
    o_ref[...] = x_ref[...] + W
"""
PASSED = "def kernel(x):\n    return _kernel(x, W)\n"


def test_a_reference_that_the_text_contradicts_on_other_inputs_lets_nothing_pass(bench: Bench) -> None:
    # What the text means, and what is right for the program's own input.
    for told in ("_kernel(x, W)", "_kernel(W, W)"):
        outcome = bench.planted(CLOSED, PASSED.replace("_kernel(x, W)", told), "own reference", CAPTURED)
        assert not outcome.fixes, told


def test_a_kernel_that_always_gets_the_first_of_what_it_closed_over_is_refused(bench: Bench) -> None:
    closed = """\
def scaled(x, w):
    @plgpu.kernel(out_type=F)
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * w
    return kernel(x)
"""
    passed = closed.replace("x_ref, o_ref", "x_ref, w_ref, o_ref").replace("* w", "* w_ref[...]")
    program = CAPTURED.split("@plgpu", maxsplit=1)[0] + "{body}\nx = jnp.{x}\nscaled(x, x)\nscaled(x, x + 1)\n"
    assert bench.planted(closed, passed.replace("(x)\n", "(x, w)\n"), "original", program).fixes
    outcome = bench.planted(closed, passed.replace("(x)\n", "(x, jnp.arange(128.0))\n"), "original", program)
    assert not outcome.fixes
    assert "kernel is called less often, or with other values" in outcome.remaining[0].reason


RACE = """\
import functools
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

F = jax.ShapeDtypeStruct((128,), jnp.float32)


@functools.partial(
    plgpu.kernel, out_type=(F, F), num_threads=2, thread_name="wg",
    scratch_types=(plgpu.SMEM((128,), jnp.float32), plgpu.Barrier(num_arrivals=1)),
)
def kernel(x_ref, a_ref, b_ref, s_ref, barrier):
{body}

kernel(jnp.{x})
"""
#: one warpgroup fills what the other reads; what is stored to the second output has another dtype than that
HANDOVER = """\
    @pl.when(lax.axis_index("wg") == 0)
    def _():
        s_ref[...] = x_ref[...] * 2
        plgpu.barrier_arrive(barrier)

    @pl.when(lax.axis_index("wg") == 1)
    def _():
        plgpu.barrier_wait(barrier)
        a_ref[...] = s_ref[...]
        b_ref[...] = (x_ref[...] + 1).astype(jnp.bfloat16)
"""


def test_a_race_is_refused_though_its_numbers_may_be_right(bench: Bench) -> None:
    if not bench.observer.capabilities["warps"]:
        pytest.skip("the interpreter of this JAX does not look for races")
    fixed = HANDOVER.replace("bfloat16)", "bfloat16).astype(jnp.float32)")
    right = bench.planted(HANDOVER, fixed, "original", RACE)
    assert len(right.fixes) == 1, right.remaining
    arrive = "        plgpu.barrier_arrive(barrier)\n"
    store = "        s_ref[...] = x_ref[...] * 2\n"
    wrong = bench.planted(HANDOVER, fixed.replace(store + arrive, arrive + store), "original", RACE)
    assert not wrong.fixes
    # Which of the two comes first is not settled, that is what is wrong with it.
    outcome = wrong.remaining[0].tried[-1].outcome
    assert "use the same memory with nothing to order them" in outcome or "differ" in outcome
