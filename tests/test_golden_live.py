"""What every golden case proves with JAX: it fails as recorded, is repaired as recorded, and its numbers are right."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from golden_cases import CASES, Case, name

from mgpu_fix import verify
from mgpu_fix.account import Outcome
from mgpu_fix.arrays import load as load_array
from mgpu_fix.catalogue import load
from mgpu_fix.engine import Engine
from mgpu_fix.model import Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.problems import Options
from mgpu_fix.source import SourceFile

pytestmark = [pytest.mark.live, pytest.mark.parametrize("case", CASES, ids=name)]


def repaired(case: Case, observer: Observer, unsafe: bool = False) -> Outcome:
    program = Program(case.path)

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    return Engine(run, load(), {case.path: SourceFile(case.path, case.before)}, Options(unsafe=unsafe)).repair()


def by_hand(case: Case, observer: Observer) -> Observation:
    """A run of what is written by hand where there is no fix."""
    return observer.observe(Program(case.path), {case.path: case.after}, ())


def test_it_fails_as_recorded_and_is_repaired(case: Case, observer: Observer, request: pytest.FixtureRequest) -> None:
    outcome = repaired(case, observer)
    known = any(map(verify.known_numbers, outcome.first.calls))
    if outcome.texts[case.path].data != case.after and not known:
        # Where this JAX has no numbers, a fix that could change them is not safe.
        outcome = repaired(case, observer, unsafe=True)
    last = outcome.last if case.repairs else by_hand(case, observer)
    if request.config.getoption("--update-cases"):
        import jax

        case.record(outcome.first, jax.__file__.removesuffix("__init__.py"))
        if found := arrays(last):
            case.record_outputs(found)
    recorded = case.recorded()
    if outcome.first.jax not in recorded:
        pytest.skip(f"not recorded on JAX {outcome.first.jax}; pytest --update-cases does")
    assert [(f.type, f.stage, f.facts) for f in outcome.first.failures] == [
        (f.type, f.stage, f.facts) for f in recorded[outcome.first.jax]
    ]
    if not outcome.first.failures:
        assert outcome.texts[case.path].data == case.before
        return
    if case.repairs:
        assert outcome.texts[case.path].data.decode() == case.after.decode()
        assert not outcome.remaining
    else:
        assert outcome.texts[case.path].data == case.before
        assert {r.code for r in outcome.remaining} == {case.code}
    assert not last.failures
    assert all(call.stage == "run" for call in last.calls)
    able = not observer.machine.unable_to_compile("sm_90a")
    assert all(bool(call.resources) == able for call in last.calls)
    numbers = arrays(last)
    if not numbers:
        level = "compiled" if able else "lowered"
        assert not case.repairs or {f.verified_by.value for f in outcome.fixes} == {level}
        return
    expected = case.outputs()
    assert expected is not None
    assert len(expected) == len(numbers)
    for want, got in zip(expected, numbers, strict=True):
        assert verify.compare_arrays(want, got) is None


def arrays(observation: Observation) -> list[np.ndarray]:
    """Outputs of every call whose numbers are known."""
    known = [c.numbers[0] for c in observation.calls if verify.known_numbers(c)]
    return [load_array(Path(observation.folder, name)) for numbers in known for name in numbers.outputs]
