"""What numbers are held against: goldens, references, the original. No JAX."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from test_engine import PATH, Scripted, Swap, compare, engine

from mgpu_fix import arrays, disk, golden, verify
from mgpu_fix.account import Outcome
from mgpu_fix.engine import Engine
from mgpu_fix.levels import Oracle, VerifiedBy
from mgpu_fix.model import KernelCall, Numbers, Observation, Referred
from mgpu_fix.problems import Options

ml_dtypes = pytest.importorskip("ml_dtypes")


def recorded(**values: str) -> verify.Golden:
    """A golden of scripted kernels: what each computes."""
    calls = tuple(
        KernelCall(name, "plgpu.kernel", None, (name,), ("f32[]",), "run", (Numbers("known", "in", (value,)),))
        for name, value in values.items()
    )
    return verify.Golden(Observation("ok", calls), compare)


def repaired(text: str, runner: Scripted, *rules: Swap, held: verify.Golden | None, **options: object) -> Outcome:
    made = engine(text, runner, *rules, options=Options(**options))  # type: ignore[arg-type]
    return Engine(runner, made.catalogue, made.originals, made.options, compare, golden=held).repair()


@dataclass
class Referring(Scripted):
    """A program with a reference: its kernels are to compute ``truth``."""

    truth: str = ""
    given: bool = False

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        seen = super().__call__(texts, draws)
        found = [n.outputs[0] for c in seen.calls for n in c.numbers]
        agrees = all(value == self.truth for value in found) if found else None
        labels = tuple(c.label for c in seen.calls)
        why = "" if agrees else "other numbers"
        return replace(seen, referred=(Referred("f", "reference", labels, agrees, why, self.given),))


def test_a_golden_outweighs_what_the_original_seems_to_mean() -> None:
    rule = Swap("A", "gives 1", "gives 2")
    outcome = repaired("k = 'fails A'\n", Scripted({"k": "1"}), rule, held=recorded(k="2"))
    assert outcome.texts[PATH].text == "k = 'gives 2'\n"
    [fix] = outcome.fixes
    assert fix.verified_by is VerifiedBy.GOLDEN
    assert fix.tried[0].outcome == "k differs from its golden: 1, not 2"
    assert [(k.verified_by, k.oracle) for k in outcome.kernels] == [(VerifiedBy.GOLDEN, Oracle.GOLDEN)]


def test_a_golden_is_an_oracle_where_there_are_no_numbers() -> None:
    rule = Swap("A", "gives 1", "gives 2", oracle=True)
    assert not repaired("k = 'fails A'\n", Scripted(), rule, held=None).fixes
    outcome = repaired("k = 'fails A'\n", Scripted(), rule, held=recorded(k="2"))
    assert outcome.texts[PATH].text == "k = 'gives 2'\n"


def test_a_golden_that_a_healthy_kernel_contradicts_is_told_and_keeps_no_other_fix_out() -> None:
    held = recorded(k="1", m="8")
    outcome = repaired("k = 'fails A'\nm = 'gives 9'\n", Scripted({"k": "1"}), Swap("A", "gives 1"), held=held)
    assert len(outcome.fixes) == 1
    [left] = outcome.remaining
    assert (left.type, left.stage, left.kernel) == ("GoldenMismatch", "compare", "m")
    assert "m differs from its golden: 9, not 8" in left.message


def test_a_golden_of_other_inputs_says_nothing() -> None:
    held = recorded(k="2")
    [call] = held.truth.calls
    other = replace(call, numbers=(replace(call.numbers[0], inputs="other"),))
    held = replace(held, truth=replace(held.truth, calls=(other,)))
    outcome = repaired("k = 'fails A'\n", Scripted({"k": "1"}), Swap("A", "gives 1"), held=held)
    assert [f.verified_by for f in outcome.fixes] == [VerifiedBy.INTERPRETER]


def test_a_golden_does_not_let_a_healthy_kernel_change() -> None:
    class Both(Swap):
        def candidates(self, failure: object, source: object) -> object:  # type: ignore[override]
            [first] = super().candidates(failure, source)  # type: ignore[arg-type]
            at = source.text.index("gives 9")  # type: ignore[attr-defined]
            return [replace(first, edits=(*first.edits, replace(first.edits[0], start=at, end=at + 7, new="gives 8")))]

    held = recorded(k="1", m="8")
    outcome = repaired("k = 'fails A'\nm = 'gives 9'\n", Scripted({"k": "1"}), Both("A", "gives 1"), held=held)
    assert not outcome.fixes
    assert "m computes something else" in outcome.remaining[0].reason


def test_require_golden_keeps_out_what_only_the_interpreter_proves() -> None:
    strict = {"require": VerifiedBy.GOLDEN}
    program, rule = "k = 'fails A'\n", Swap("A", "gives 1")
    assert not repaired(program, Scripted({"k": "1"}), rule, held=None, **strict).fixes
    assert repaired(program, Scripted({"k": "1"}), rule, held=recorded(k="1"), **strict).fixes


def test_a_reference_is_an_oracle_where_there_are_no_numbers() -> None:
    rule = Swap("A", "gives 1", "gives 2", oracle=True)
    outcome = repaired("k = 'fails A'\n", Referring(truth="2"), rule, held=None)
    assert outcome.texts[PATH].text == "k = 'gives 2'\n"
    assert [(k.verified_by, k.oracle) for k in outcome.kernels] == [(VerifiedBy.INTERPRETER, Oracle.REFERENCE)]
    assert outcome.fixes[0].tried[0].outcome == "f differs from reference: other numbers"


def test_neither_a_reference_nor_the_original_may_be_contradicted() -> None:
    for truth in ("1", "2"):
        runner = Referring({"k": "1"}, truth=truth)
        outcome = repaired("k = 'fails A'\n", runner, Swap("A", "gives 2"), held=None)
        assert not outcome.fixes, truth


@pytest.mark.parametrize("given", [True, False])
def test_a_reference_that_a_healthy_program_contradicts_is_a_failure_only_if_it_was_named(given: bool) -> None:
    outcome = repaired("k = 'gives 1'\n", Referring(truth="2", given=given), held=None)
    told = outcome.remaining if given else outcome.notes
    assert [(t.type, t.kernel) for t in told] == [("ReferenceMismatch", "k")]
    assert len(outcome.remaining) + len(outcome.notes) == 1


# ---------------------------------------------------------------------- files

VALUES = {
    "float32": np.array([[1.5, np.nan], [-0.0, np.inf]], "f4"),
    "bfloat16": np.array([1.0, 2.5], ml_dtypes.bfloat16),
    "float8_e4m3fn": np.array([1.0, 0.5], ml_dtypes.float8_e4m3fn),
    "int32": np.array([7], "i4"),
}


def run(folder: Path, name: str = "k", **more: object) -> Observation:
    """A run with one kernel call that computes VALUES."""
    folder.mkdir()
    names = []
    for i, (dtype, array) in enumerate(VALUES.items()):
        names.append(f"{i:05d}.{dtype}.npy")
        np.save(folder / names[-1], arrays.stored(array), allow_pickle=False)
    numbers = Numbers("known", "in", tuple(names), (names[0],))
    call = replace(KernelCall(name, "pl.kernel", None, ("f32[2]",), ("f32[2,2]",), "run", (numbers,)), **more)  # type: ignore[arg-type]
    return Observation("ok", (call,), folder=str(folder), jax="0.12")


def saved(tmp_path: Path) -> Path:
    first, again = run(tmp_path / "a"), run(tmp_path / "b")
    drafted = golden.draft(first, again, verify.compare_files)
    assert not drafted.refused
    path = golden.place(str(tmp_path / "program.py"))
    assert disk.write_new(path, golden.dump(drafted, again, {"jax": "0.12"}, verify.TOLERANCE)) == ""
    return path


def test_what_is_recorded_is_read_back_bit_for_bit_without_pickle(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert path == tmp_path / "golden" / "program.npz"
    [call] = golden.load(path, tmp_path / "c", None, None).truth.calls
    back = [arrays.load(tmp_path / "c" / name) for name in call.numbers[0].outputs]
    assert [(a.dtype.name, a.tobytes()) for a in back] == [(d, v.tobytes()) for d, v in VALUES.items()]
    with np.load(path, allow_pickle=False) as archive:
        assert np.array_equal(archive["00001.float32"], VALUES["float32"], equal_nan=True)
        assert json.loads(bytes(archive["golden.json"]))["jax"] == "0.12"
    assert [p.name for p in path.parent.iterdir()] == ["program.npz"]


def test_the_same_numbers_are_the_same_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()
    (tmp_path / "again").mkdir()
    assert saved(tmp_path / "again").read_bytes() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"not a zip"),
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: rewritten(path, lambda head: head.update(format=99)),
        lambda path: rewritten(path, lambda head: head.pop("calls")),
        lambda path: rewritten(path, lambda head: head["calls"][0]["numbers"][0].update(outputs=["../../evil.npy"])),
        lambda path: rewritten(path, lambda head: head["calls"][0]["numbers"][0].update(outputs=["00099.int32.npy"])),
        lambda path: rewritten(path, lambda head: head.update(calls=[1])),
    ],
)
def test_a_spoiled_golden_is_one_clear_error(spoil: object, tmp_path: Path) -> None:
    path = saved(tmp_path)
    spoil(path)  # type: ignore[operator]
    with pytest.raises(golden.GoldenError, match=r"program\.npz"):
        golden.load(path, tmp_path / "c", None, None)
    assert not (tmp_path / "evil.npy").exists()


def rewritten(path: Path, change: object) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(members["golden.json"])
    change(head)  # type: ignore[operator]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**members, "golden.json": json.dumps(head).encode()}.items():
            archive.writestr(name, data)


def test_tolerances_are_those_of_the_file_but_for_what_is_asked(tmp_path: Path) -> None:
    path = saved(tmp_path)
    off = run(tmp_path / "off")
    np.save(tmp_path / "off" / "00000.float32.npy", VALUES["float32"] * np.float32(1.01))
    for rtol, agrees in ((None, False), (0.1, True)):
        held = golden.load(path, tmp_path / f"c{rtol}", rtol, None)
        [verdict] = verify.judge(off, off, verify.compare_files, held)
        assert verdict.agrees is agrees
        assert verdict.oracle is Oracle.GOLDEN


def test_what_cannot_be_relied_on_is_not_recorded(tmp_path: Path) -> None:
    good = run(tmp_path / "good")
    [call] = good.calls
    [numbers] = call.numbers
    for why, numbers_now, more in [
        ("two runs of it differ", replace(numbers, stable=False), {}),
        ("it races", replace(numbers, doubt="it races"), {}),
        ("nothing writes to", numbers, {"unwritten": (0,)}),
        ("computes something else", replace(numbers, outputs=numbers.outputs[::-1]), {}),
    ]:
        again = replace(good, calls=(replace(call, numbers=(numbers_now,), **more),))  # type: ignore[arg-type]
        assert why in golden.draft(good, again, verify.compare_files).refused
    unknown = replace(good, calls=(replace(call, numbers=(Numbers("unknown", "in", why="no interpreter"),)),))
    assert golden.draft(unknown, unknown, verify.compare_files).left == ((call.label, "no interpreter"),)
    stopped = replace(good, status="stopped", reason="KeyError: 1")
    assert "KeyError" in golden.draft(stopped, stopped, verify.compare_files).refused


def test_calls_are_known_by_kernel_and_place_not_by_line(tmp_path: Path) -> None:
    held = golden.load(saved(tmp_path), tmp_path / "c", None, None)
    again = run(tmp_path / "again")
    assert golden.gaps(again, held) == []
    [call] = again.calls
    more = replace(again, calls=(call, replace(call, number=1), replace(call, name="other")))
    assert [g.message for g in golden.gaps(more, held)] == [
        "k f32[2] -> f32[2,2] is not recorded",
        "other f32[2] -> f32[2,2] is not recorded",
    ]
    assert [g.type for g in golden.gaps(replace(again, calls=()), held)] == ["NotCalled"]
