"""What fails in a run, the rule that knows it, and what can be tried against it. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mgpu_fix import verify
from mgpu_fix.catalogue import Catalogue, NoFix, Rule
from mgpu_fix.levels import Applicability, VerifiedBy
from mgpu_fix.model import Candidate, Edit, Failure, Observation, Tried, digest
from mgpu_fix.source import Overlap, SourceError, SourceFile, offset_before

#: outcome of a candidate that a run approved of, and of one that needs none
KEPT = "kept"
SEEN = "it leads back to a text that was tried"
#: what to prefer instead of a fix of some name: of those that are proven, the one whose kernels take the least time
FASTEST = "fastest"


#: a file and a place in it; None where that is not known, or not the same as before
Place: TypeAlias = tuple[str, int] | None


@dataclass(frozen=True)
class Options:
    """What a caller allows. ``select`` empty means every rule."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    unsafe: bool = False
    require: VerifiedBy = VerifiedBy.LOWERED
    prefer: str = ""
    max_iterations: int = 8

    def allows(self, rule: Rule) -> bool:
        """Whether this rule's fixes are asked for."""
        names = (rule.code, rule.name)
        chosen = not self.select or any(n in self.select for n in names)
        return chosen and not any(n in self.ignore for n in names)

    def allowed(self, problem: "Problem") -> "list[Option]":
        """Those ways to fix a problem that may be written."""
        least = Applicability.UNSAFE if self.unsafe else Applicability.SAFE
        return [o for o in problem.options if least.allows(o.applicability)]


@dataclass(frozen=True)
class Option:
    """A candidate of one problem, with how safe it is where numbers can (not) be compared."""

    candidate: Candidate
    applicability: Applicability


@dataclass
class Problem:
    """A failure that is there now, its rule, and what can be tried."""

    failure: Failure
    rule: Rule | None
    mark: str
    options: list[Option] = field(default_factory=list)
    reason: str = ""
    tried: list[Tried] = field(default_factory=list)
    ignored: bool = False


class Problems:
    """Finds the problems of a run, and remembers what was tried against each of them."""

    def __init__(self, catalogue: Catalogue, options: Options, golden: verify.Golden | None) -> None:
        self.catalogue, self.options, self.golden = catalogue, options, golden
        self._tried: dict[str, list[Tried]] = {}

    def of(
        self,
        observation: Observation,
        texts: Mapping[str, SourceFile],
        baseline: Observation,
        excluded: Mapping[str, str],
        banned: Callable[[Problem, Candidate], str],
    ) -> list[Problem]:
        """What fails in a run of ``texts``. ``baseline`` is the run that has the numbers to compare with; ``excluded``
        says of marks why nothing is tried, and ``banned`` the same of a candidate, empty if it may be."""
        problems: dict[str, Problem] = {}
        for failure in observation.failures:
            rule = self.catalogue.match(failure)
            mark = mark_of(failure, rule)
            if mark in problems:
                continue
            problem = problems[mark] = Problem(failure, rule, mark, tried=self._tried.setdefault(mark, []))
            if mark in excluded:
                problem.reason = excluded[mark]
            elif failure.caught:
                problem.reason = "caught by the program; --include-caught fixes it"
            elif rule is None:
                problem.reason = "no rule for it yet" + (
                    f"; raised by {failure.raised_at}" if failure.raised_at else ""
                )
            elif _ignored(failure, rule, texts):
                problem.reason, problem.ignored = "a comment says to ignore it", True
            elif not self.options.allows(rule):
                problem.reason = f"{rule.code} is not selected"
            else:
                self._propose(problem, rule, texts, baseline, banned)
        return list(problems.values())

    def note(self, problem: Problem, candidate: Candidate, outcome: str) -> None:
        """Remember what became of a candidate."""
        entry, known = Tried(candidate.title, outcome), self._tried.setdefault(problem.mark, [])
        told = any(t.title == entry.title and t.outcome != KEPT for t in known)
        if entry not in known and not (told and outcome == SEEN):
            known.append(entry)

    def _propose(
        self,
        problem: Problem,
        rule: Rule,
        texts: Mapping[str, SourceFile],
        baseline: Observation,
        banned: Callable[[Problem, Candidate], str],
    ) -> None:
        failure = problem.failure
        path = path_of(failure)
        source = texts.get(path)
        if source is None:
            problem.reason = f"it lies in {path}, which was not named" if path else "its place is not known"
            return
        try:
            candidates = list(rule.candidates(failure, source))
        except NoFix as e:
            problem.reason = str(e)
            return
        except SourceError as e:
            problem.reason = f"it cannot be edited: {e}"
            return
        except Exception as e:
            # A rule's fault must not cost the user the report of everything else.
            problem.reason = f"{rule.code} itself failed, which is a fault of the rule: {type(e).__name__}: {e}"
            return
        if not candidates:
            problem.reason = "the rule has no fix for this form of it"
            return
        calls = [c for c in baseline.calls if c.name == failure.kernel]
        # One that is not called yet may turn out to have one.
        oracle = all(verify.has_oracle(c, baseline, self.golden) for c in calls if not c.batched)
        doubtful = any(verify.races(c) or verify.doubt(c) for c in calls)
        for candidate in sorted(candidates, key=lambda c: c.name != self.options.prefer):
            level = candidate.applicability
            if level is Applicability.SAFE and (
                (candidate.needs_oracle and not oracle)
                or (doubtful and not candidate.orders)
                or _loses_comment(source, candidate)
            ):
                level = Applicability.UNSAFE
            why = banned(problem, candidate)
            if why:
                problem.reason = why
            else:
                problem.options.append(Option(candidate, level))
        if self.options.allowed(problem):
            problem.reason = ""


def _ignored(failure: Failure, rule: Rule, texts: Mapping[str, SourceFile]) -> bool:
    """Whether a comment where it failed says to leave it."""
    source = texts.get(failure.span.path) if failure.span else None
    return source is not None and failure.span is not None and source.ignores(failure.span.line, (rule.code, rule.name))


def path_of(failure: Failure) -> str:
    """The file in which a failure is to be mended; empty if that is not known."""
    if failure.facts.returned:
        return failure.facts.returned[0].body.path
    return failure.span.path if failure.span else ""


def mark_of(failure: Failure, rule: Rule | None) -> str:
    """A name for a failure that stays when lines and numbers change; kernels of several files may be called alike."""
    text = re.sub(r"(/[\w.\-]+)+|\d+", "#", failure.message)
    parts = [rule.code if rule else "", failure.type, text, failure.kernel, path_of(failure)]
    return digest("\0".join(parts).encode("utf-8", "surrogateescape"))


def places_of(
    observation: Observation,
    texts: Mapping[str, SourceFile],
    before: Mapping[str, SourceFile],
    edits: Mapping[str, Sequence[Edit]],
) -> list[Place]:
    """Where each failure of a run of ``texts`` stands in ``before``, of which the edits (by path) made these."""
    places: list[Place] = []
    for span in (failure.span for failure in observation.failures):
        if span is None or span.path not in texts or span.line > len(texts[span.path].starts):
            places.append(None)
            continue
        offset = texts[span.path].starts[span.line - 1] + span.column - 1
        found = offset_before(before[span.path].text, edits.get(span.path, ()), offset)
        places.append(None if found is None else (span.path, found))
    return places


def mark_counts(observation: Observation, catalogue: Catalogue) -> Counter[str]:
    """How often each mark occurs among the failures of a run."""
    return Counter(mark_of(failure, catalogue.match(failure)) for failure in observation.failures)


def _loses_comment(source: SourceFile, candidate: Candidate) -> bool:
    try:
        return bool(source.comments - source.edited(candidate.edits).comments)
    except (SourceError, Overlap):
        return False


def change_of(problem: Problem, option: Option) -> tuple[str, tuple[Edit, ...]]:
    """What an option does, to tell apart those that make the same edits in different files."""
    return path_of(problem.failure), option.candidate.edits
