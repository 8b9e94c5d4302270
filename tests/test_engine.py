"""The search, against a scripted runner: no JAX, no process, no disk."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from mgpu_fix.account import Outcome
from mgpu_fix.catalogue import Catalogue, NoFix, Rule, Signature
from mgpu_fix.engine import Engine
from mgpu_fix.levels import Applicability, VerifiedBy
from mgpu_fix.model import (
    OUTSIDE,
    WAITS,
    Candidate,
    Check,
    Edit,
    Failure,
    KernelCall,
    Numbers,
    Observation,
    Referred,
    Resources,
    Span,
)
from mgpu_fix.problems import Options
from mgpu_fix.source import SourceFile

PATH = "/program.py"


class Swap(Rule):
    """Replaces the failing state of a kernel by others, in order."""

    def __init__(self, error: str, *states: str, level: Applicability = Applicability.SAFE, oracle: bool = False):
        self.code = self.name = error
        self.jax = "any"
        self.signatures = [Signature(error, "^" + error)]
        self.states, self.level, self.oracle = states, level, oracle

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        if not self.states:
            raise NoFix("nothing helps")
        for state in self.states:
            edits = tuple(
                Edit(*source.bounds(node.value), repr(state))
                for node in source.tree.body
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == failure.kernel
            )
            yield Candidate(f"make it {state}", edits, self.level, state, self.oracle)


class Rename(Rule):
    """Replaces a failing state everywhere in one step."""

    code = name = "OLD"
    jax = "any"
    signatures = (Signature("OLD", "^OLD"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        at, edits = source.text.find("fails OLD"), []
        while at >= 0:
            edits.append(Edit(at, at + len("fails OLD"), "gives 1"))
            at = source.text.find("fails OLD", at + 1)
        yield Candidate("rename", tuple(edits))


@dataclass
class Scripted:
    """A program: ``name = "fails X"`` is a kernel that fails with X, ``name = "gives N"`` one that computes N.

    ``meant`` is what a failing kernel's intended trace computes; kernels not in it have no numbers. ``uncalled`` are
    declared only. ``stops`` ends the program with an error of its own when that text is in it.
    """

    meant: dict[str, str] = field(default_factory=dict)
    uncalled: Sequence[str] = ()
    stops: str = "\0"
    ends: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0
    original: str = ""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        self.runs += 1
        text = texts[PATH].decode() if PATH in texts else self.original
        calls, failures = [], []
        for line, node in enumerate(ast.parse(text).body, 1):
            assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            name, state = node.targets[0].id, ast.literal_eval(node.value)
            word, _, value = state.partition(" ")
            span = Span(PATH, line, 1, line, 2)
            known = () if word == "fails" and name not in self.meant else (Numbers("known", "in", (value,)),)
            if word == "fails":
                failures.append(Failure(value, f"{value} went wrong at line {line}", "lower", span, name))
                known = (Numbers("known", "in", (self.meant[name],)),) if name in self.meant else ()
            if name not in self.uncalled:
                mine = (len(failures) - 1,) if word == "fails" else ()
                stage = "lower" if mine else "run"
                calls.append(KernelCall(name, "plgpu.kernel", span, (name,), ("f32[]",), stage, known, mine))
        for part, status in self.ends.items():
            if part in text:
                return Observation(status, reason="it hung")
        status = "stopped" if self.stops in text else "ok"
        return Observation(status, tuple(calls), tuple(failures), "an assert" if status == "stopped" else "")


def compare(mine: Sequence[Path], theirs: Sequence[Path]) -> str | None:
    # A space more or less is another text with the same numbers.
    same = [p.name.strip() for p in mine] == [p.name.strip() for p in theirs]
    return None if same else f"{theirs[0].name}, not {mine[0].name}"


def engine(text: str, runner: Scripted, *rules: Rule, options: Options = Options()) -> Engine:
    runner.original = text
    source = SourceFile(PATH, text.encode())
    return Engine(runner, Catalogue(rules), {PATH: source}, options, compare)


def test_a_chain_of_two_errors_is_fixed_and_its_proof_told() -> None:
    runner = Scripted({"k": "2"})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "fails B"), Swap("B", "gives 2")).repair()
    assert outcome.texts[PATH].text == "k = 'gives 2'\n"
    assert [f.code for f in outcome.fixes] == ["A", "B"]
    assert [f.verified_by.value for f in outcome.fixes] == ["interpreter", "interpreter"]
    assert not outcome.remaining
    assert runner.runs == 3


def test_a_healthy_program_is_run_once_and_left() -> None:
    runner = Scripted()
    outcome = engine("k = 'gives 1'\n", runner).repair()
    assert (outcome.fixes, outcome.remaining, runner.runs) == ((), (), 1)


class Lines(Scripted):
    """The lines of a program are one kernel ``k`` that stops at the first that fails; ``meant`` is what it computes."""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        text = texts[PATH].decode() if PATH in texts else self.original
        self.runs += 1
        lines = {number: line.split("'")[1].split() for number, line in enumerate(text.splitlines(), 1) if line}
        number = next((n for n, (word, _) in lines.items() if word == "fails"), 0)
        sum_of = self.meant["k"] if number else str(sum(int(value) for _, value in lines.values()))
        span = Span(PATH, number, 6)
        failures = (Failure(lines[number][1], f"{lines[number][1]} at {number}", "lower", span, "k"),) if number else ()
        known = (Numbers("known", "in", (sum_of,)),)
        stage, mine = ("lower", (0,)) if number else ("run", ())
        return Observation("ok", (KernelCall("k", "", span, ("k",), ("f32[]",), stage, known, mine),), failures)


class First(Rule):
    """Replaces the failing line by ``state``, with ``line`` before it."""

    jax = "any"

    def __init__(self, error: str, state: str, line: str = "") -> None:
        self.code = self.name = error
        self.signatures, self.state, self.line = [Signature(error, "")], state, line

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        assert failure.span is not None
        at = source.starts[failure.span.line - 1]
        end = at + len(source.line(failure.span.line).rstrip())
        edits = (Edit(at + 4, end, repr(self.state)), *([Edit(at, at, self.line)] if self.line else []))
        yield Candidate("mend it", edits)


def test_the_same_error_at_another_place_of_a_kernel_is_a_step_forward() -> None:
    text = "a = 'fails A'\nb = 'gives 2'\nc = 'fails A'\nd = 'fails A'\n"
    outcome = engine(text, Lines({"k": "5"}), First("A", "gives 1")).repair()
    assert outcome.texts[PATH].text == text.replace("fails A", "gives 1")
    assert len(outcome.fixes) == 3
    assert not outcome.remaining
    # All of them, or none: nothing is kept of a kernel that computes something else in the end, or does not come there.
    for runner, rule in [
        (Lines({"k": "6"}), First("A", "gives 1")),
        (Lines({"k": "5"}), First("A", "gives 1", "z = 'gives 1'\n")),
    ]:
        outcome = engine(text, runner, rule).repair()
        assert outcome.texts[PATH].text == text
        assert len(outcome.remaining) == 1


def test_the_same_error_that_comes_before_or_behind_itself_for_ever_ends() -> None:
    text = "a = 'fails A'\n"
    for rule in (First("A", "fails A", "z = 'gives 1'\n"), First("A", "gives 1", "z = 'fails A'\n")):
        runner = Lines({"k": "1"})
        outcome = engine(text, runner, rule).repair()
        assert outcome.texts[PATH].text == text
        assert not outcome.fixes
        assert runner.runs == 2, "the error is where it was, or where the fix put it"


@pytest.mark.parametrize("why", [WAITS, OUTSIDE, ""])
def test_a_kernel_that_is_first_called_with_a_fix_must_come_to_its_end(why: str) -> None:
    class Declared(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            calls = tuple(
                replace(c, numbers=(Numbers("tainted", "in", why=why),)) for c in seen.calls if not c.failures
            )
            return replace(seen, calls=calls)

    outcome = engine("k = 'fails A'\n", Declared(), Swap("A", "gives 2")).repair()
    assert bool(outcome.fixes) is not bool(why)
    assert all(f"k does not come to its end: {why}" in left.reason for left in outcome.remaining)


class Turn(Rule):
    """Answers an error by what the state that it was raised in becomes."""

    jax = "any"

    def __init__(self, error: str, **states: str):
        self.code = self.name = error
        self.signatures, self.states = [Signature(error, "")], states

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        state = source.text.split("'")[1]
        at = source.text.index(state)
        yield Candidate(f"mend {self.code}", (Edit(at, at + len(state), self.states[state.split()[1]]),))


class Both(Scripted):
    """A kernel that fails with A and B at once, where its state names both."""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        seen = super().__call__(texts, draws)
        failures = tuple(replace(f, type=kind) for f in seen.failures for kind in f.type.rstrip("0123456789"))
        calls = tuple(replace(c, failures=tuple(range(len(failures)))) if c.failures else c for c in seen.calls)
        return replace(seen, calls=calls, failures=failures)


def test_a_fix_that_was_undone_is_tried_again_after_another() -> None:
    # Only after B is mended does what mends A hold.
    runner = Both({"k": "1"})
    rules = Turn("A", AB="fails C", A1="gives 1"), Turn("B", AB="fails A1"), Turn("C", C="gives 2")
    outcome = engine("k = 'fails AB'\n", runner, *rules).repair()
    assert outcome.texts[PATH].text == "k = 'gives 1'\n"
    assert [f.code for f in outcome.fixes] == ["B", "A"]
    # Where nothing leads to the end there is one.
    rules = Turn("A", AB="fails C", A1="fails C"), Turn("B", AB="fails A1"), Turn("C", C="gives 2")
    outcome = engine("k = 'fails AB'\n", Both({"k": "1"}), *rules).repair()
    assert outcome.texts[PATH].text == "k = 'fails AB'\n"
    assert [bool(left.reason) for left in outcome.remaining] == [True, True]


def test_ping_pong_ends_and_nothing_is_kept() -> None:
    runner = Scripted({"k": "1"})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "fails B"), Swap("B", "fails A")).repair()
    assert outcome.texts[PATH].text == "k = 'fails A'\n"
    assert not outcome.fixes
    assert "then stops with B" in outcome.remaining[0].reason
    assert runner.runs == 2


def test_no_text_is_run_twice() -> None:
    seen: list[bytes] = []

    class Watched(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen.append(texts.get(PATH, b""))
            return super().__call__(texts, draws)

    rules = (Swap("A", "fails B", "fails C", "gives 3"), Swap("B", "fails A", "fails C"), Swap("C"))
    engine("k = 'fails A'\nm = 'fails C'\n", Watched({"k": "1"}), *rules).repair()
    assert len(seen) == len(set(seen))


def test_wrong_numbers_are_refused_and_the_next_candidate_tried() -> None:
    runner = Scripted({"k": "2"})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 3", "gives 2")).repair()
    assert outcome.texts[PATH].text == "k = 'gives 2'\n"
    assert [(t.title, t.outcome) for t in outcome.fixes[0].tried] == [
        ("make it gives 3", "k computes something else: 3, not 2"),
        ("make it gives 2", "kept"),
    ]


def test_wrong_numbers_alone_leave_the_file() -> None:
    outcome = engine("k = 'fails A'\n", Scripted({"k": "2"}), Swap("A", "gives 3")).repair()
    assert outcome.texts[PATH].text == "k = 'fails A'\n"
    assert "k computes something else: 3, not 2" in outcome.remaining[0].reason


def test_a_candidate_that_breaks_another_kernel_is_refused() -> None:
    class Breaks(Swap):
        def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
            [mine] = super().candidates(failure, source)
            at = source.text.index("gives 5")
            yield Candidate("break m", (*mine.edits, Edit(at, at + 7, "gives 6")))
            yield mine

    runner = Scripted({"k": "2"})
    outcome = engine("k = 'fails A'\nm = 'gives 5'\n", runner, Breaks("A", "gives 2")).repair()
    assert outcome.texts[PATH].text == "k = 'gives 2'\nm = 'gives 5'\n"
    assert outcome.fixes[0].tried[0].outcome == "m computes something else: 6, not 5"


def test_independent_failures_are_tried_together_first() -> None:
    runner = Scripted({"k": "1", "m": "2"})
    outcome = engine("k = 'fails A'\nm = 'fails B'\n", runner, Swap("A", "gives 1"), Swap("B", "gives 2")).repair()
    assert outcome.texts[PATH].text == "k = 'gives 1'\nm = 'gives 2'\n"
    assert runner.runs == 2


def test_one_bad_apple_does_not_spoil_the_rest() -> None:
    runner = Scripted({"k": "1", "m": "2", "n": "3"})
    text = "k = 'fails A'\nm = 'fails B'\nn = 'fails C'\n"
    rules = (Swap("A", "gives 1"), Swap("B", "gives 9"), Swap("C", "gives 3"))
    outcome = engine(text, runner, *rules).repair()
    assert outcome.texts[PATH].text == "k = 'gives 1'\nm = 'fails B'\nn = 'gives 3'\n"
    assert [r.kernel for r in outcome.remaining] == ["m"]


def test_an_unfinished_chain_is_rolled_back_and_its_first_failure_told() -> None:
    runner = Scripted({"k": "1", "m": "2"})
    rules = (Swap("A", "fails B"), Swap("C", "gives 2"))
    outcome = engine("k = 'fails A'\nm = 'fails C'\n", runner, *rules).repair()
    assert outcome.texts[PATH].text == "k = 'fails A'\nm = 'gives 2'\n"
    [left] = outcome.remaining
    assert (left.type, left.code) == ("A", "A")
    assert "then stops with B" in left.reason


def test_a_rename_fixes_every_site_in_one_step() -> None:
    runner = Scripted({"k": "1", "m": "1"})
    outcome = engine("k = 'fails OLD'\nm = 'fails OLD'\n", runner, Rename()).repair()
    assert outcome.texts[PATH].text == "k = 'gives 1'\nm = 'gives 1'\n"
    assert len(outcome.fixes) == 1
    assert runner.runs == 2


def test_a_fix_that_no_call_proves_is_not_kept() -> None:
    runner = Scripted({"k": "1"}, uncalled=["k"])
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 1")).repair()
    assert outcome.texts[PATH].text == "k = 'fails A'\n"
    assert "never called" in outcome.remaining[0].reason


def test_without_an_oracle_only_value_keeping_fixes_are_safe() -> None:
    keeps = engine("k = 'fails A'\n", Scripted(), Swap("A", "gives 1")).repair()
    assert keeps.fixes[0].verified_by.value == "lowered"
    could_change = engine("k = 'fails A'\n", Scripted(), Swap("A", "gives 1", oracle=True)).repair()
    assert not could_change.fixes
    assert "--unsafe-fixes" in could_change.remaining[0].reason
    allowed = engine("k = 'fails A'\n", Scripted(), Swap("A", "gives 1", oracle=True), options=Options(unsafe=True))
    assert allowed.repair().fixes[0].applicability is Applicability.UNSAFE


@pytest.mark.parametrize("level", [Applicability.UNSAFE, Applicability.DISPLAY])
def test_less_than_safe_is_proposed_not_applied(level: Applicability) -> None:
    outcome = engine("k = 'fails A'\n", Scripted({"k": "1"}), Swap("A", "gives 1", level=level)).repair()
    assert not outcome.fixes
    assert "make it gives 1" in outcome.remaining[0].reason


def test_a_suggestion_is_never_applied() -> None:
    rule = Swap("A", "gives 1", level=Applicability.DISPLAY)
    outcome = engine("k = 'fails A'\n", Scripted({"k": "1"}), rule, options=Options(unsafe=True)).repair()
    assert not outcome.fixes


def test_a_lost_comment_makes_a_fix_unsafe() -> None:
    class Eats(Rule):
        code = name = "A"
        jax = "any"
        signatures = (Signature("A", "^A"),)

        def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
            yield Candidate("eat it", (Edit(0, len(source.text), "k = 'gives 1'\n"),))

    outcome = engine("k = 'fails A'  # why\n", Scripted({"k": "1"}), Eats()).repair()
    assert not outcome.fixes


def test_what_hangs_or_stops_the_program_is_refused() -> None:
    hangs = engine("k = 'fails A'\n", Scripted({"k": "1"}, ends={"gives": "timeout"}), Swap("A", "gives 1")).repair()
    assert "it hung" in hangs.remaining[0].reason
    stops = engine("k = 'fails A'\n", Scripted({"k": "1"}, stops="gives 1"), Swap("A", "gives 1")).repair()
    assert "an assert" in stops.remaining[0].reason


def test_a_program_that_does_not_come_to_its_end_is_not_tried() -> None:
    class Hung(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            return Observation("timeout", seen.calls, seen.failures, "it did not end within 60 s")

    runner = Hung({"k": "1"})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 1")).repair()
    assert runner.runs == 1
    assert "cannot be run to its end" in outcome.remaining[0].reason


def test_the_programs_own_check_outweighs_our_numbers() -> None:
    class Checked(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            return Observation("stopped", seen.calls, seen.failures, "AssertionError: not what I want")

    outcome = engine("k = 'fails A'\n", Checked({"k": "1"}), Swap("A", "gives 1")).repair()
    assert not outcome.fixes
    assert "the program's own check fails" in outcome.remaining[0].reason


class WithTests(Scripted):
    """A program whose tests are ``checks``: those fail whose name is in ``always``, or once their kernel is fixed."""

    always: tuple[Check, ...] = ()
    fixed: tuple[Check, ...] = ()

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        seen = super().__call__(texts, draws)
        checks = self.always + self.fixed * any(c.name == "k" and c.stage == "run" for c in seen.calls)
        return replace(seen, status="stopped" if checks else "ok", reason="1 test fails" * bool(checks), checks=checks)


WRONG = "AssertionError: 1 != 2"


@pytest.mark.parametrize(
    ("always", "fixed", "reason"),
    [
        # What fails by itself, what fails without looking at the kernel, what saw placeholders: no objection.
        ((Check("t", "KeyError: 1", kernels=("k",)),), (), ""),
        ((Check("t", WRONG, kernels=("other",)),), (), ""),
        ((Check("t", WRONG, kernels=("k",), unproven=True),), (), ""),
        ((), (Check("t", WRONG, kernels=("k",), unproven=True),), ""),
        # It contradicts what the kernel is taken to mean.
        ((Check("t", WRONG, kernels=("k",)),), (), f"the program's own check fails with it: t: {WRONG}"),
        # It passed before, so its reason does not matter, nor what it looked at.
        ((), (Check("t", "KeyError: 1"),), "t then fails: KeyError: 1"),
        ((Check("u", "KeyError: 2"),), (Check("t", WRONG),), f"t then fails: {WRONG}"),
    ],
)
def test_a_test_that_a_fix_breaks_or_that_refutes_it_keeps_it_out(
    always: tuple[Check, ...], fixed: tuple[Check, ...], reason: str
) -> None:
    runner = WithTests({"k": "1"})
    runner.always, runner.fixed = always, fixed
    outcome = engine("k = 'fails A'\nother = 'gives 5'\n", runner, Swap("A", "gives 1")).repair()
    assert bool(outcome.fixes) == (not reason)
    assert reason in "".join(r.reason for r in outcome.remaining)


def test_numbers_that_change_from_run_to_run_make_no_fix_safe() -> None:
    class Racing(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            [call] = seen.calls
            unstable = tuple(Numbers("known", n.inputs, n.outputs, stable=False) for n in call.numbers)
            return Observation("ok", (KernelCall(**{**vars(call), "numbers": unstable}),), seen.failures)

    outcome = engine("k = 'fails A'\n", Racing({"k": "1"}), Swap("A", "gives 1")).repair()
    assert not outcome.fixes
    assert "give different numbers" in outcome.remaining[0].reason


@pytest.mark.parametrize("oracle", [True, False])
def test_numbers_in_doubt_make_no_fix_safe(oracle: bool) -> None:
    class Doubtful(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            [call] = seen.calls
            doubtful = tuple(Numbers("known", n.inputs, n.outputs, doubt="it races") for n in call.numbers)
            return Observation("ok", (KernelCall(**{**vars(call), "numbers": doubtful}),), seen.failures)

    rule = Swap("A", "gives 1", oracle=oracle)
    outcome = engine("k = 'fails A'\n", Doubtful({"k": "1"}), rule).repair()
    assert not outcome.fixes
    assert "is not safe, since it races" in outcome.remaining[0].reason
    outcome = engine("k = 'fails A'\n", Doubtful({"k": "1"}), rule, options=Options(unsafe=True)).repair()
    assert [f.applicability for f in outcome.fixes] == [Applicability.UNSAFE]


def test_a_fix_whose_own_run_is_in_doubt_is_undone() -> None:
    class Doubtful(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            [call] = seen.calls
            why = "" if seen.failures else "it races"
            numbers = tuple(Numbers("known", n.inputs, n.outputs, doubt=why) for n in call.numbers)
            return Observation("ok", (KernelCall(**{**vars(call), "numbers": numbers}),), seen.failures)

    outcome = engine("k = 'fails A'\n", Doubtful({"k": "1"}), Swap("A", "gives 1")).repair()
    assert not outcome.fixes
    assert "its numbers prove nothing, since it races" in outcome.remaining[0].reason


def test_an_output_that_nothing_writes_to_proves_nothing() -> None:
    class Unwritten(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            [call] = seen.calls
            return Observation("ok", (KernelCall(**{**vars(call), "unwritten": (0,)}),), seen.failures)

    outcome = engine("k = 'fails A'\n", Unwritten({"k": "1"}), Swap("A", "gives 1")).repair()
    assert not outcome.fixes
    assert "an output that nothing writes to" in outcome.remaining[0].reason


def test_a_rule_that_fails_costs_no_report() -> None:
    class Faulty(Swap):
        def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
            raise TypeError("oops")

    outcome = engine("k = 'fails A'\n", Scripted({"k": "1"}), Faulty("A")).repair()
    assert outcome.remaining[0].reason == "A itself failed, which is a fault of the rule: TypeError: oops"


def test_an_interrupt_goes_through() -> None:
    class Interrupted(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            if texts:
                raise KeyboardInterrupt
            return super().__call__(texts, draws)

    with pytest.raises(KeyboardInterrupt):
        engine("k = 'fails A'\n", Interrupted({"k": "1"}), Swap("A", "gives 1")).repair()


def test_caught_and_unknown_failures_are_told_with_a_reason() -> None:
    class Catching(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            first, second = seen.failures
            return Observation("ok", seen.calls, (Failure(**{**vars(first), "caught": True}), second))

    outcome = engine("k = 'fails A'\nm = 'fails Z'\n", Catching({"k": "1"}), Swap("A", "gives 1")).repair()
    assert [r.reason for r in outcome.remaining] == [
        "caught by the program; --include-caught fixes it",
        "no rule for it yet",
    ]


def test_select_and_ignore() -> None:
    for options in (Options(select=("B",)), Options(ignore=("A",))):
        outcome = engine("k = 'fails A'\n", Scripted({"k": "1"}), Swap("A", "gives 1"), options=options).repair()
        assert outcome.remaining[0].reason == "A is not selected"


def test_prefer_turns_the_order() -> None:
    rule = Swap("A", "gives 1", "gives  1")
    outcome = engine("k = 'fails A'\n", Scripted(), rule, options=Options(prefer="gives  1")).repair()
    assert outcome.texts[PATH].text == "k = 'gives  1'\n"


def test_a_failure_outside_the_named_files_says_where() -> None:
    class Elsewhere(Scripted):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            moved = Failure(**{**vars(seen.failures[0]), "span": Span("/lib/helper.py", 3)})
            return Observation("ok", seen.calls, (moved,))

    outcome = engine("k = 'fails A'\n", Elsewhere({"k": "1"}), Swap("A", "gives 1")).repair()
    assert outcome.remaining[0].reason == "it lies in /lib/helper.py, which was not named"


def test_diagnosis_changes_nothing_and_runs_once() -> None:
    runner = Scripted({"k": "1"})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 1")).diagnose()
    assert runner.runs == 1
    assert outcome.remaining[0].reason == "a fix is known: make it gives 1; mgpu-fix apply tries it"


class Declares(Scripted):
    """A kernel that is declared wrongly is not called."""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        seen = super().__call__(texts, draws)
        return replace(seen, calls=tuple(c for c in seen.calls if not c.failures))


@pytest.mark.parametrize("agrees", [True, False, None])
def test_a_fix_that_needs_numbers_may_wait_for_a_kernel_that_is_then_called(agrees: bool | None) -> None:
    @dataclass
    class HeldAgainst(Declares):
        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            known = Referred("f", "reference", tuple(c.label for c in seen.calls), agrees)
            return replace(seen, referred=(known,))

    outcome = engine("k = 'fails A'\n", HeldAgainst(), Swap("A", "gives 1", oracle=True)).repair()
    assert [fix.name for fix in outcome.fixes] == (["A"] if agrees else [])


class Stops(Scripted):
    """Fails before any kernel is called while its text says so."""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        if b"fails OLD" in (texts.get(PATH) or self.original.encode()):
            return Observation("stopped", failures=(Failure("OLD", "OLD", "import", Span(PATH, 1)),), reason="OLD")
        return super().__call__(texts, draws)


def test_a_fix_without_a_kernel_is_proven_by_the_kernels_that_are_then_called() -> None:
    def names(text: str) -> list[str]:
        return [fix.name for fix in engine(text, Stops(), Rename()).repair().fixes]

    assert names('first = "fails OLD"\nk = "gives 2"\n') == ["OLD"]
    assert names('first = "fails OLD"\nfirst = "fails NEW"\n') == []


@pytest.mark.parametrize(("state", "fixed"), [("gives 2", True), ("gives 3", False)])
def test_what_hid_the_kernels_does_not_take_their_numbers(state: str, fixed: bool) -> None:
    # The second fix needs an oracle, which only the run after the first one gives.
    runner = Stops(meant={"k": "2"})
    outcome = engine(
        'first = "fails OLD"\nk = "fails NEW"\n', runner, Rename(), Swap("NEW", state, oracle=True)
    ).repair()
    assert [fix.name for fix in outcome.fixes] == (["OLD", "NEW"] if fixed else ["OLD"])


@dataclass
class Timed(Scripted):
    """A program whose kernels run on a GPU: by the value that they compute, and how they say it, in so many seconds."""

    takes: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        seen = super().__call__(texts, draws)
        text = texts[PATH].decode() if PATH in texts else self.original
        states = [ast.literal_eval(node.value) for node in ast.parse(text).body if isinstance(node, ast.Assign)]
        calls = [replace(c, gpu_seconds=self.takes.get(s)) for c, s in zip(seen.calls, states, strict=True)]
        return replace(seen, calls=tuple(calls))


FASTEST = Options(prefer="fastest")
#: three ways to say 1
WAYS = ("gives 1", "gives  1", "gives   1")


def timed(
    rule: Rule, *takes: float, text: str = "k = 'fails A'\n", options: Options = FASTEST
) -> tuple[Outcome, Timed]:
    runner = Timed({"k": "1"}, takes=dict(zip(WAYS, takes, strict=False)))
    return engine(text, runner, rule, options=options).repair(), runner


@pytest.mark.parametrize(
    ("takes", "way"),
    [((3e-6, 2e-6, 1e-6), 2), ((3e-6, 1e-6, 2e-6), 1), ((1e-6, 2e-6, 3e-6), 0), ((1e-6, 0.98e-6, 1e-6), 0)],
)
def test_the_fastest_of_the_proven_fixes_is_kept(takes: tuple[float, ...], way: int) -> None:
    outcome, _ = timed(Swap("A", *WAYS), *takes)
    assert outcome.texts[PATH].text == f"k = '{WAYS[way]}'\n"
    assert len(outcome.fixes) == 1 and outcome.kernels[0].gpu_seconds == takes[way]
    told = [t.outcome for t in outcome.fixes[0].tried if t.outcome != "kept"]
    assert len(told) == 2 and all(t.startswith("proven, too, and takes ") for t in told)


def test_a_faster_fix_that_is_wrong_is_not_kept() -> None:
    runner = Timed({"k": "1"}, takes={"gives 1": 3e-6, "gives 2": 1e-6})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 1", "gives 2"), options=FASTEST).repair()
    assert outcome.texts[PATH].text == "k = 'gives 1'\n"


def test_nothing_is_tried_again_where_nothing_is_timed() -> None:
    for takes in ((), (3e-6,)):
        outcome, runner = timed(Swap("A", *WAYS), *takes)
        assert outcome.texts[PATH].text == "k = 'gives 1'\n"
        assert runner.runs == (4 if takes else 2)
    assert timed(Swap("A", *WAYS), 3e-6, 2e-6, 1e-6, options=Options())[0].texts[PATH].text == "k = 'gives 1'\n"


def test_each_kernel_gets_its_fastest_fix() -> None:
    runner = Timed({"k": "1", "m": "1"}, takes={"gives 1": 3e-6, "gives  1": 1e-6})
    text = "k = 'fails A'\nm = 'fails B'\n"
    outcome = engine(text, runner, Swap("A", *WAYS[:2]), Swap("B", *WAYS[:2]), options=FASTEST).repair()
    assert outcome.texts[PATH].text == "k = 'gives  1'\nm = 'gives  1'\n"
    assert len(outcome.fixes) == 2 and not outcome.remaining


def test_a_fast_fix_that_nobody_wants_leaves_the_others() -> None:
    runner = Timed({"k": "1"}, takes={"gives 1": 3e-6, "gives  1": 1e-6})
    runner.original = "k = 'fails A'\n"
    sources = {PATH: SourceFile(PATH, runner.original.encode())}
    rules = Catalogue((Swap("A", *WAYS[:2]),))
    outcome = Engine(
        runner, rules, sources, FASTEST, compare, accept=lambda fix: fix.title != "make it gives  1"
    ).repair()
    assert outcome.texts[PATH].text == "k = 'gives 1'\n"


@dataclass
class Compiling(Scripted):
    """A program whose kernels are compiled: ``takes`` is what one that computes a value takes, and the compiler refuses
    those that compute anything else."""

    takes: Mapping[str, Resources | None] = field(default_factory=dict)

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        seen = super().__call__(texts, draws)
        text = texts[PATH].decode() if PATH in texts else self.original
        states = {line.partition(" ")[0]: line.strip("'").partition("'")[2] for line in text.splitlines()}
        calls, failures = [], list(seen.failures)
        for one in seen.calls:
            word, _, value = states[one.name].partition(" ")
            if word == "fails":
                calls.append(one)
            elif value in self.takes:
                calls.append(replace(one, resources=self.takes[value]))
            else:
                failures.append(Failure("CompileError", "no", "compile", one.span, one.name))
                calls.append(replace(one, stage="compile", failures=(len(failures) - 1,)))
        return replace(seen, calls=tuple(calls), failures=tuple(failures))


COMPILES = Resources("sm_90a", 32)


def test_a_fix_that_does_not_compile_is_refused_and_the_next_one_tried() -> None:
    runner = Compiling({"k": "2"}, takes={"2": COMPILES})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 2.0", "gives 2")).repair()
    assert outcome.texts[PATH].text == "k = 'gives 2'\n"
    assert outcome.kernels[0].resources == COMPILES


def test_a_fix_that_alone_does_not_compile_leaves_the_file() -> None:
    runner = Compiling(takes={})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 2")).repair()
    assert (outcome.texts[PATH].text, outcome.fixes) == ("k = 'fails A'\n", ())
    assert "k then stops with CompileError: no" in outcome.remaining[0].reason


def test_a_kernel_that_does_not_compile_remains_and_keeps_no_other_from_being_fixed() -> None:
    runner = Compiling({"k": "2"}, takes={"2": COMPILES})
    outcome = engine("k = 'fails A'\nm = 'gives 5'\n", runner, Swap("A", "gives 2")).repair()
    assert outcome.texts[PATH].text == "k = 'gives 2'\nm = 'gives 5'\n"
    [left] = outcome.remaining
    assert (left.code, left.stage, left.type, left.kernel) == (None, "compile", "CompileError", "m")
    assert left.reason == "no rule for it yet"
    assert [(kernel.stage, kernel.verified_by) for kernel in outcome.kernels] == [
        ("run", VerifiedBy.INTERPRETER),
        ("compile", None),
    ]


def test_a_fix_that_keeps_another_kernel_from_compiling_is_refused() -> None:
    class Breaks(Swap):
        def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
            [mine] = super().candidates(failure, source)
            at = source.text.index("gives 5")
            yield Candidate("break m", (*mine.edits, Edit(at, at + 7, "gives 6")))

    runner = Compiling({"k": "2", "m": "5"}, takes={"2": COMPILES, "5": COMPILES})
    outcome = engine("k = 'fails A'\nm = 'gives 5'\n", runner, Breaks("A", "gives 2")).repair()
    assert not outcome.fixes
    assert "m now stops at compile" in outcome.remaining[0].reason


@pytest.mark.parametrize(
    ("takes", "require", "level"),
    [
        ({"2": COMPILES}, VerifiedBy.COMPILED, VerifiedBy.COMPILED),
        ({"2": COMPILES}, VerifiedBy.LOWERED, VerifiedBy.COMPILED),
        ({"2": COMPILES}, VerifiedBy.INTERPRETER, None),
        ({"2": None}, VerifiedBy.LOWERED, VerifiedBy.LOWERED),
        ({"2": None}, VerifiedBy.COMPILED, None),
    ],
)
def test_without_numbers_a_kernel_is_proven_by_compiling_it(
    takes: dict[str, Resources | None], require: VerifiedBy, level: VerifiedBy | None
) -> None:
    runner = Compiling(takes=takes)
    chosen = Options(require=require)
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "unknown 2"), options=chosen).repair()
    assert [fix.verified_by for fix in outcome.fixes] == ([level] if level else [])
    if level is None:
        assert f"--require {require.value} asks for more" in outcome.remaining[0].reason


def test_numbers_alone_do_not_do_where_compiling_is_asked_for() -> None:
    runner = Compiling({"k": "2"}, takes={"2": None})
    chosen = Options(require=VerifiedBy.COMPILED)
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "gives 2"), options=chosen).repair()
    assert not outcome.fixes
    assert "proven by the interpreter only" in outcome.remaining[0].reason


@pytest.mark.parametrize(
    ("before", "after", "cost"),
    [
        (None, Resources("sm_90a", 255), ""),
        (None, Resources("sm_90a", 255, 120), "it spills 120 bytes of registers to memory"),
        (Resources("sm_90a", 255, 120), Resources("sm_90a", 255, 120), ""),
        (Resources("sm_90a", 255, 120), Resources("sm_90a", 255, 124), "it spills 124 bytes of registers to memory"),
        (Resources("sm_90a", 32), Resources("sm_90a", 63), ""),
        (Resources("sm_90a", 32), Resources("sm_90a", 64), "it takes 64 registers a thread, 32 before"),
        (None, Resources("sm_90a", 32, 0, 0, ("Potential Performance Loss",)), "Potential Performance Loss"),
        (Resources("sm_90a", 32, 0, 0, ("Loss",)), Resources("sm_90a", 32, 0, 0, ("Loss",)), ""),
    ],
)
def test_what_a_fixed_kernel_takes_more_is_its_cost(before: Resources | None, after: Resources, cost: str) -> None:
    class Lowering(Compiling):
        """What fails also lowers, as a kernel does whose copies are not ordered."""

        def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
            seen = super().__call__(texts, draws)
            calls = tuple(
                replace(one, stage="run", resources=before) if before and one.failures else one for one in seen.calls
            )
            return replace(seen, calls=calls)

    runner = Lowering({"k": "2"}, takes={"2": after})
    [fix] = engine("k = 'fails A'\n", runner, Swap("A", "gives 2")).repair().fixes
    assert fix.cost.startswith(cost) and bool(fix.cost) == bool(cost)


def test_what_a_kernel_takes_is_told_with_its_last_fix() -> None:
    runner = Compiling({"k": "2"}, takes={"2": Resources("sm_90a", 255, 8)})
    outcome = engine("k = 'fails A'\n", runner, Swap("A", "fails B"), Swap("B", "gives 2")).repair()
    assert [bool(fix.cost) for fix in outcome.fixes] == [False, True]


def test_what_a_comment_says_to_ignore_is_left_and_is_no_failure() -> None:
    text = "k = 'fails A'  # mgpu-fix: ignore[A]\nm = 'fails B'  # mgpu-fix: ignore[A]\n"
    outcome = engine(text, Scripted({"k": "1", "m": "2"}), Swap("A", "gives 1"), Swap("B", "gives 2")).repair()
    assert outcome.texts[PATH].text == text.replace("fails B", "gives 2")
    assert not outcome.remaining
    assert [(n.kernel, n.reason) for n in outcome.notes] == [("k", "a comment says to ignore it")]
