"""MGF903 with JAX: programs in many forms are repaired, lower, and compute what their reference says."""

import runpy
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from mgpu_fix import catalogue, verify
from mgpu_fix.account import Outcome
from mgpu_fix.arrays import load as load_array
from mgpu_fix.engine import Engine
from mgpu_fix.levels import Applicability, VerifiedBy
from mgpu_fix.model import Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.problems import Options
from mgpu_fix.source import SourceFile
from mgpu_fix.upgrade import upgrade
from mgpu_fix.versions import Window

pytestmark = pytest.mark.live

PROGRAMS = {f.stem: f for f in sorted((Path(__file__).parent / "programs" / "pallas_call").glob("*.py"))}
#: what nobody may repair, and why
LEFT = {
    "aliases": "no counterpart of input_output_aliases=",
    "triton_backend": "for Triton",
    # Each block, or each step in memory of its own, adds to what another one made: the pipeline computes NaN.
    "parallel_race": "computes something else",
    "accumulate_two_steps": "computes something else",
}
#: what no interpreter runs, so that no numbers prove it
UNPROVEN = ("gmem_input_smem_output", "transforms", "wgmma")


def repaired(path: Path, observer: Observer, unsafe: bool) -> Outcome:
    program = Program(str(path))

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    sources = {str(path): SourceFile(str(path), path.read_bytes())}
    return Engine(run, catalogue.load(), sources, Options(unsafe=unsafe)).repair()


def check_numbers(path: Path, observation: Observation) -> int:
    """How many outputs were known; all of them are right."""
    module = runpy.run_path(str(path))
    want = module["reference"](*module["example_args"]())
    expected = [np.asarray(w) for w in (want if isinstance(want, tuple) else (want,))]
    last = [c.numbers[0] for c in observation.calls if verify.known_numbers(c)][-1:]
    found = [load_array(Path(observation.folder, name)) for numbers in last for name in numbers.outputs]
    for whole, got in zip(expected, found, strict=True) if found else ():
        # A kernel that is vmapped is run for one part of the batch at a time, and the first of these is kept.
        np.testing.assert_allclose(whole.reshape(-1)[: got.size], got.reshape(-1), rtol=1e-2)
    return len(found)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - LEFT.keys()))
def test_it_is_repaired_and_right(name: str, observer: Observer) -> None:
    path = PROGRAMS[name]
    outcome = repaired(path, observer, unsafe=name in UNPROVEN)
    if not outcome.first.failures:
        assert outcome.first.jax.startswith("0.10")
        return
    assert not outcome.remaining
    assert all(call.stage == "run" for call in outcome.last.calls)
    assert outcome.texts[str(path)].data != path.read_bytes()
    known = check_numbers(path, outcome.last)
    if name not in UNPROVEN and known and verify.known_numbers(outcome.first.calls[0]):
        assert {fix.verified_by for fix in outcome.fixes} == {VerifiedBy.INTERPRETER}


@pytest.mark.parametrize("name", UNPROVEN)
def test_without_numbers_it_is_not_safe(name: str, observer: Observer, tmp_path: Path) -> None:
    # Its reference would be another proof.
    path = tmp_path / PROGRAMS[name].name
    path.write_text(PROGRAMS[name].read_text().replace("def reference(", "def expected("))
    outcome = repaired(path, observer, unsafe=False)
    assert outcome.texts[str(path)].data == path.read_bytes()


@pytest.mark.parametrize("name", LEFT)
def test_it_is_left_alone(name: str, observer: Observer) -> None:
    outcome = repaired(PROGRAMS[name], observer, unsafe=True)
    assert outcome.texts[str(PROGRAMS[name])].data == PROGRAMS[name].read_bytes()
    if outcome.first.failures:
        reason = outcome.remaining[0].reason
        assert LEFT[name] in reason or "differs from reference" in reason


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - LEFT.keys()))
def test_an_upgraded_file_lowers_everywhere_and_is_right(name: str, observer: Observer, tmp_path: Path) -> None:
    if name == "cost_estimate" and version("jax").startswith("0.10"):
        pytest.skip("plgpu.kernel takes cost_estimate= from 0.12.0 on")
    source = SourceFile(str(PROGRAMS[name]), PROGRAMS[name].read_bytes())
    new = upgrade(source, catalogue.load().rules, Window(), Applicability.SAFE).source
    assert "pallas_call(" not in new.text.replace("pl.pallas_call, ", "")
    path = tmp_path / f"{name}.py"
    path.write_bytes(new.data)
    observation = observer.observe(Program(str(path)), {}, None)
    # A returned value is not API drift.
    assert [f.facts.callee for f in observation.failures if not f.facts.returned] == []
    assert all(call.stage == "run" or call.failures for call in observation.calls)
    check_numbers(path, observation)
