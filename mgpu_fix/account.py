"""What is told of a search: each fix with its proof, what remains and why, how well each kernel is proven. Pure."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mgpu_fix import verify
from mgpu_fix.catalogue import Rule
from mgpu_fix.levels import Applicability, Oracle, VerifiedBy, weakest
from mgpu_fix.model import Candidate, Edit, Failure, Fix, KernelCall, Observation, ProvenKernel, Referred, Remaining
from mgpu_fix.problems import KEPT, Option, Options, Problem
from mgpu_fix.source import SourceFile, line_before, unified_diff
from mgpu_fix.verify import CallVerdict


@dataclass(frozen=True)
class Outcome:
    """What the search ends with. ``texts`` is what to write; where nothing was proven it is the originals.

    ``notes`` are failures that a comment says to ignore, and kernels that nothing changed and that the program's own
    reference contradicts.
    """

    texts: dict[str, SourceFile]
    first: Observation
    last: Observation
    fixes: tuple[Fix, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    kernels: tuple[ProvenKernel, ...] = ()
    notes: tuple[Remaining, ...] = ()


@dataclass(frozen=True)
class Way:
    """A candidate for a failure and what the search found of it: ``outcome`` is empty where it was not tried."""

    candidate: Candidate
    applicability: Applicability
    path: str
    outcome: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """A failure of the program as it was given, and the ways to fix it, best first; ``reason`` is why it remains."""

    failure: Failure
    rule: Rule | None
    mark: str
    ways: tuple[Way, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Step:
    """An accepted candidate: the problem it answers and the text it was applied to."""

    problem: Problem
    option: Option
    before: SourceFile
    edits: tuple[Edit, ...]
    kernels: frozenset[str]
    marks: frozenset[str]


class Account:
    """What can be told of a search whose last run is ``last``: ``verdicts`` hold it against ``baseline``."""

    def __init__(
        self,
        originals: Mapping[str, SourceFile],
        options: Options,
        baseline: Observation,
        last: Observation,
        verdicts: Sequence[CallVerdict],
    ) -> None:
        self.originals, self.options = originals, options
        self.baseline, self.last, self.verdicts = baseline, last, verdicts

    def outcome(
        self,
        first: Observation,
        texts: dict[str, SourceFile],
        steps: Sequence[Step],
        problems: Sequence[Problem],
        strays: Sequence[CallVerdict],
    ) -> Outcome:
        """The search's end: ``problems`` are those of its last run, ``strays`` the kernels in which nothing fails and
        whose numbers are wrong."""
        remaining = tuple(self.remaining(p, texts) for p in problems if not p.ignored)
        fixes = tuple(self.fix(step, steps[i + 1 :]) for i, step in enumerate(steps))
        fixed = frozenset(itertools.chain.from_iterable(step.kernels for step in steps))
        lost = [(v, _stray(v)) for v in strays]
        given = {r.reference for r in self.last.referred if r.given}
        notes = tuple(told for v, told in lost if v.oracle is Oracle.REFERENCE and not given)
        notes += tuple(self.remaining(p, texts) for p in problems if p.ignored)
        notes += tuple(_unused(r) for r in self.last.referred if r.given and r.agrees is None)
        remaining += tuple(told for _, told in lost if told not in notes)
        return Outcome(texts, first, self.last, fixes, remaining, self._proofs(fixed), notes)

    def fix(self, step: Step, later: Sequence[Step]) -> Fix:
        """A step as a fix, after which the steps ``later`` came."""
        verdicts = [v for v in self.verdicts if step.kernels & v.names]
        proofs = [(v, v.after) for v in verdicts if v.after]
        level = weakest(level_of(v, v.after) for v in verify.telling(verdicts) if v.after)
        costs = [step.option.candidate.cost]
        if not any(step.kernels & other.kernels for other in later):
            costs += [verify.takes_more(v.before, after) for v, after in proofs]
        path = step.before.path
        span = step.problem.failure.span
        line = column = None
        if span is not None and span.path == path:
            line = line_before(self.originals[path], step.before, span.line)
            column = span.column if line is not None else None
        rule = step.problem.rule
        assert rule is not None
        return Fix(
            code=rule.code,
            name=rule.name,
            title=step.option.candidate.title,
            applicability=step.option.applicability,
            verified_by=level,
            path=path,
            kernel=step.problem.failure.kernel,
            line=line,
            column=column,
            diff=unified_diff(path, step.before.data, step.before.edited(step.edits).data),
            cost="; ".join(dict.fromkeys(filter(None, costs))),
            tried=tuple(step.problem.tried),
        )

    def remaining(self, problem: Problem, texts: Mapping[str, SourceFile]) -> Remaining:
        """A problem of ``texts`` that is not fixed, and why."""
        failure, reason = problem.failure, problem.reason
        tried = {t.title for t in problem.tried}
        if not reason and problem.tried:
            reason = "no fix held: " + "; ".join(f"{t.title}: {t.outcome}" for t in problem.tried if t.outcome != KEPT)
        best = next((o for o in problem.options if o.candidate.title not in tried), None)
        if best is not None and best in self.options.allowed(problem):
            reason = reason or f"a fix is known: {best.candidate.title}; mgpu-fix apply tries it"
        elif best is not None and best.applicability is Applicability.DISPLAY:
            reason = reason or f"a suggestion only: {best.candidate.title}"
        elif best is not None:
            its = f"{reason}; another fix" if reason else "its fix"
            why = self._why_unsafe(best, failure)
            reason = f"{its} {why}: {best.candidate.title}; --unsafe-fixes applies it"
        span = failure.span
        line = column = None
        path = span.path if span else ""
        if span is not None:
            line, column = span.line, span.column
            if path in texts:
                line = line_before(self.originals[path], texts[path], span.line)
                column = column if line is not None else None
        return Remaining(
            code=problem.rule.code if problem.rule else None,
            stage=failure.stage,
            type=failure.type,
            message=failure.message,
            path=path,
            line=line,
            column=column,
            reason=reason or "not tried",
            kernel=failure.kernel,
            tried=tuple(problem.tried),
        )

    def _why_unsafe(self, option: Option, failure: Failure) -> str:
        calls = [c for c in self.baseline.calls if c.name == failure.kernel]
        if any(map(verify.races, calls)):
            return "is not safe, since two runs of the kernel give different numbers"
        doubt = next(filter(None, map(verify.doubt, calls)), "")
        if doubt:
            return f"is not safe, since {doubt}"
        if option.candidate.applicability is Applicability.SAFE and option.candidate.needs_oracle:
            why = next((n.why for c in calls for n in c.numbers if n.why), "")
            return "could change a value, and no numbers can prove that it does not" + (f" ({why})" if why else "")
        return "may change what the program computes"

    def _proofs(self, fixed: frozenset[str]) -> tuple[ProvenKernel, ...]:
        # Of several kernels that became one, the first was compared on one more draw, too.
        verdicts = {id(v.after): v for v in reversed(self.verdicts) if v.after is not None}
        # A fix may put the kernel into a function of another name.
        judged = [(call, verdicts.get(id(call))) for call in self.last.calls]
        return tuple(_proof(call, v, (v.before if v else call).name in fixed) for call, v in judged)


def _stray(verdict: CallVerdict) -> Remaining:
    """A kernel that nothing fails in, and whose numbers are not those that they should be."""
    golden = verdict.oracle is Oracle.GOLDEN
    kind = "GoldenMismatch" if golden else "ReferenceMismatch"
    reason = "no error explains it" + ("; if it is right, golden record takes it" if golden else "")
    span = verdict.before.span
    path, line = (span.path, span.line) if span else ("", None)
    name = verdict.before.name
    return Remaining(None, "compare", kind, verdict.lost, path, line, None, reason=reason, kernel=name)


def _proof(call: KernelCall, verdict: CallVerdict | None, fixed: bool) -> ProvenKernel:
    # That a kernel which nothing changed computes what it did proves nothing.
    held = verdict is not None and (fixed or verdict.oracle is not Oracle.ORIGINAL)
    oracle = verdict.oracle if verdict is not None and held and verdict.agrees else None
    level = None
    if call.stage == "run" and not call.failures:
        level = level_of(verdict if held else None, call)
    inputs = ", ".join(call.avals) or "no operands"
    note = ""
    if held and verdict is not None:
        if verdict.agrees:
            data = "your data" if verdict.inputs == 1 else f"your data ({verdict.inputs} calls)"
            inputs += f", {data}" + (" + 1 random draw" if verdict.drawn else "")
        else:
            note = verdict.why
    line, path = (call.span.line, call.span.path) if call.span else (None, "")
    found = ProvenKernel(call.name, line, call.stage, level, inputs, note, path, oracle)
    return replace(found, resources=call.resources, uncompiled=call.uncompiled, gpu_seconds=call.gpu_seconds)


#: proofs in words
BY = {
    VerifiedBy.GOLDEN: "a golden file",
    VerifiedBy.GPU: "a GPU",
    VerifiedBy.INTERPRETER: "the interpreter",
    VerifiedBy.COMPILED: "compiling",
    VerifiedBy.LOWERED: "lowering",
}


def level_of(verdict: CallVerdict | None, call: KernelCall) -> VerifiedBy:
    """What proves a call that nothing stops: its numbers, if a verdict says that they are right."""
    if verdict is not None and verdict.agrees:
        proof = verdict.oracle.proof
        return VerifiedBy.GPU if verdict.on_gpu and not proof.satisfies(VerifiedBy.GPU) else proof
    return VerifiedBy.COMPILED if call.resources else VerifiedBy.LOWERED


def _unused(referred: Referred) -> Remaining:
    """A reference that the user named and that said nothing."""
    message = f"{referred.function} was not held against {referred.reference}: {referred.why}"
    return Remaining(None, "compare", "ReferenceUnused", message, "", None, None, "it proves nothing")


def first_line(text: str) -> str:
    """The beginning of an error message."""
    return (text.strip().splitlines() or [""])[0][:160]
