"""What an editor shows of one file, and what it can do about it, as plain data. Pure over the engine's runner."""

import contextlib
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mgpu_fix.account import Diagnosis, Outcome, Way
from mgpu_fix.catalogue import Catalogue, Rule
from mgpu_fix.engine import Engine
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Edit, Failure, KernelCall, Observation, Remaining, Span
from mgpu_fix.outcomes import reports_of, reports_of_one
from mgpu_fix.source import Names, Overlap, SourceError, SourceFile, edits_between
from mgpu_fix.upgrade import seen
from mgpu_fix.versions import Window

#: lines of an error's message that are shown
_LINES = 8


class Severity(enum.IntEnum):
    """As in the protocol."""

    ERROR = 1
    WARNING = 2
    INFORMATION = 3
    HINT = 4


@dataclass(frozen=True)
class Spot:
    """A place that has to do with a problem."""

    span: Span
    message: str


@dataclass(frozen=True)
class Action:
    """Edits by path, of the texts that were looked at. ``preferred`` are those that are safe and proven by a run."""

    title: str
    changes: Mapping[str, tuple[Edit, ...]]
    preferred: bool = False


@dataclass(frozen=True)
class Problem:
    """Something to show at ``span``, a place of the file itself; ``actions`` are what can be done, the best first."""

    span: Span
    message: str
    severity: Severity = Severity.ERROR
    code: str = ""
    related: tuple[Spot, ...] = ()
    actions: tuple[Action, ...] = ()
    deprecated: bool = False


@dataclass(frozen=True)
class Analysis:
    """All there is to say of one file. ``fix_all`` makes every fix that is safe and proven, as ``apply`` would.

    ``expected`` are problems, by code and line, that are none, since the program expects them.
    """

    problems: tuple[Problem, ...] = ()
    fix_all: Action | None = None
    expected: frozenset[tuple[str, int]] = frozenset()
    sources: Mapping[str, SourceFile] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """A few words for a status line."""
        wrong = [p for p in self.problems if p.severity < Severity.INFORMATION]
        proven = sum(any(action.preferred for action in p.actions) for p in wrong)
        if not wrong:
            unseen = any(p.severity is Severity.INFORMATION for p in self.problems)
            return "some kernels were not seen" if unseen else "clean"
        said = f"{len(wrong)} problem{'s' * (len(wrong) != 1)}"
        return f"{said}, {proven} with a proven fix" if proven else said

    def over(self, static: "Analysis") -> "Analysis":
        """This, which a run saw, and what is certain without one at places that the run says nothing of."""
        told = self.expected | {(p.code, p.span.line) for p in self.problems}
        more = tuple(p for p in static.problems if (p.code, p.span.line) not in told)
        sources = {**static.sources, **self.sources}
        return replace(self, problems=(*self.problems, *more), sources=sources)


def without_a_run(source: SourceFile, catalogue: Catalogue, window: Window) -> Analysis:
    """What is certain from the source alone: API drift, and what the rules call evident."""
    problems: list[Problem] = []
    try:
        names = Names(source)
        found = seen(source, catalogue.rules, window)
    except (SourceError, RecursionError):
        return Analysis(sources={source.path: source})
    for rule, upgrade, refusal in found:
        actions: tuple[Action, ...] = ()
        if upgrade.candidate is not None and not refusal:
            way = Way(upgrade.candidate, upgrade.candidate.applicability, source.path)
            actions = tuple(_unproven(way, source))
        # A rule that failed has no place.
        for place in upgrade.places:
            others = (p for p in upgrade.places if p != place)
            problems.append(
                Problem(
                    place,
                    f"{upgrade.symbol}: {upgrade.reason or rule.summary}",
                    Severity.ERROR if upgrade.due else Severity.WARNING,
                    rule.code,
                    tuple(Spot(p, "the same here") for p in others),
                    actions,
                    deprecated=not upgrade.due and upgrade.candidate is not None,
                )
            )
    for rule in catalogue.rules:
        problems += [Problem(span, message, code=rule.code) for span, message in _evident(rule, names)]
    for span, name in catalogue.unknown(source):
        problems.append(Problem(span, f"mgpu-fix: no rule is called {name}; this ignores nothing", Severity.HINT))
    return Analysis(tuple(problems), sources={source.path: source})


def _evident(rule: Rule, names: Names) -> list[tuple[Span, str]]:
    try:
        return list(rule.evident(names))
    except Exception:
        # A rule's fault costs what it would have said, and nothing else.
        return []


def with_runs(engine: Engine, path: str, command: bool) -> Iterator[Analysis]:
    """What runs show of the file at ``path``, more with each: what fails, what mends it all, what mends each alone.

    ``command`` says that what is run is not the file itself.
    """
    diagnosed = engine.diagnose()
    yield _analysis(engine, path, command, diagnosed)
    outcome = engine.repair()
    whole = _action(outcome, engine.originals)
    alone: dict[str, Action | None] = {}
    fixed = engine.fixed(outcome)
    groups = [marks for marks in _groups(engine.diagnoses()) if marks & fixed]
    for marks in groups if whole else ():
        by_itself = outcome if len(groups) == 1 else engine.repair(only=marks)
        held = marks & fixed <= engine.fixed(by_itself)
        own = _action(by_itself, engine.originals) if held else None
        alone |= dict.fromkeys(marks & fixed, own or whole)
    fix_all = whole if whole and whole.preferred else None
    if whole and not whole.preferred:
        safe = {mark for mark, action in alone.items() if action and action.preferred}
        partly = _action(engine.repair(only=safe), engine.originals) if safe else None
        fix_all = partly if partly and partly.preferred else None
    yield _analysis(engine, path, command, diagnosed, alone, fix_all)


def _groups(findings: Iterable[Diagnosis]) -> list[set[str]]:
    """Marks of the failures, those of one kernel together, since they are only proven together."""
    groups: dict[str, set[str]] = {}
    for finding in findings:
        groups.setdefault(finding.failure.kernel or finding.mark, set()).add(finding.mark)
    return list(groups.values())


def _action(outcome: Outcome, originals: Mapping[str, SourceFile]) -> Action | None:
    """What makes all fixes of an outcome; None where there are none."""
    changes = {
        path: edits_between(originals[path].text, source.text)
        for path, source in outcome.texts.items()
        if source.data != originals[path].data
    }
    if not changes:
        return None
    first, *more = dict.fromkeys(fix.title for fix in outcome.fixes)
    title = "; then: ".join([first, *more])
    safe = all(fix.applicability is Applicability.SAFE and fix.verified_by for fix in outcome.fixes)
    return Action(title if safe else f"{title} (proven, but not safe)", changes, safe)


def _unproven(way: Way, source: SourceFile) -> Iterator[Action]:
    """What makes the edits of a candidate that no run tried, where these can be made."""
    title, how = way.candidate.title, "suggestion" if way.applicability is Applicability.DISPLAY else "not proven"
    if way.applicability is Applicability.UNSAFE:
        title += ", which may change what is computed"
    with contextlib.suppress(SourceError, Overlap):
        changed = source.edited(way.candidate.edits)
        yield Action(f"{title} ({how})", {way.path: edits_between(source.text, changed.text)})


def _analysis(
    engine: Engine,
    path: str,
    command: bool,
    diagnosed: Outcome,
    alone: Mapping[str, Action | None] | None = None,
    fix_all: Action | None = None,
) -> Analysis:
    """``alone`` is what is proven to mend each failure, None where that is still to be found out."""
    problems, expected = [], set()
    for finding in engine.diagnoses():
        span = _place(finding.failure, diagnosed.first, path, engine.originals[path], command)
        if span is not None and finding.failure.caught:
            expected.add((finding.rule.code if finding.rule else "", span.line))
        elif span is not None:
            problems.append(_problem(finding, span, alone, engine))
    told = [*diagnosed.remaining, *diagnosed.notes]
    problems += [_stray(r, engine.originals[path]) for r in told if r.stage == "compare" and r.path in (path, "")]
    problems += _stops(diagnosed, engine.originals[path], command)
    return Analysis(tuple(problems), fix_all, frozenset(expected), engine.originals)


def _problem(finding: Diagnosis, span: Span, alone: Mapping[str, Action | None] | None, engine: Engine) -> Problem:
    failure, rule = finding.failure, finding.rule
    proven = alone.get(finding.mark) if alone else None
    lines = f"{failure.type}: {failure.message}".strip().splitlines()
    said = "\n".join([*lines[:_LINES], *(["…"] if len(lines) > _LINES else [])])
    # What a run refuted is not offered; what it kept is part of what is proven.
    others = [a for way in finding.ways if not way.outcome for a in _unproven(way, engine.originals[way.path])]
    actions = [*([proven] if proven else []), *(a for a in others if proven is None or a.changes != proven.changes)]
    if alone is not None and proven is None and finding.reason:
        said += f"\nmgpu-fix: {finding.reason}"
    related = tuple(dict.fromkeys(_related(failure, span, engine.first.calls)))
    return Problem(span, said, Severity.ERROR, rule.code if rule else "", related, tuple(actions))


def _place(failure: Failure, run: Observation, path: str, source: SourceFile, command: bool) -> Span | None:
    """Where a failure shows in a file: its own place, or the kernel's that it is in; None if it does not."""
    if failure.span is not None and failure.span.path == path:
        return _to_line_end(failure.span, source)
    calls = [c.span for c in run.calls if c.name == failure.kernel and c.span and c.span.path == path]
    if calls:
        return _to_line_end(calls[0], source)
    # A program of many files has others that speak of it.
    return None if command else _to_line_end(Span(path, 1), source)


def _to_line_end(span: Span, source: SourceFile) -> Span:
    """A span with its end, the end of the line's text where only the line is known."""
    line = min(span.line, len(source.starts))
    if span.end_line and span.end_line <= len(source.starts):
        return span
    text = source.line(line).rstrip()
    column = span.column if span.column > 1 else len(text) - len(text.lstrip()) + 1
    return Span(span.path, line, column, line, max(column, len(text) + 1))


def _related(failure: Failure, shown: Span, calls: Sequence[KernelCall]) -> Iterator[Spot]:
    if failure.span is not None and failure.span.path != shown.path:
        yield Spot(failure.span, "it fails here")
    for returned in failure.facts.returned:
        body = returned.body
        yield Spot(Span(body.path, body.line, body.column), f"{body.name}, the body that returns it")
    for copied in failure.facts.uncommitted:
        yield Spot(copied.store, "the store that is not committed")
    bodies = {(returned.body.path, returned.body.line) for returned in failure.facts.returned}
    for call in calls:
        if call.span and (call.span.path, call.span.line) in bodies:
            continue
        if call.name == failure.kernel and call.span and call.failures:
            yield Spot(call.span, f"{call.name} with {', '.join(call.avals) or 'no operands'}")


def _stray(told: Remaining, source: SourceFile) -> Problem:
    """A kernel whose numbers are not those that they should be."""
    span = _to_line_end(Span(source.path, told.line or 1), source)
    return Problem(span, f"{told.type}: {told.message}\nmgpu-fix: {told.reason}", Severity.WARNING)


def _stops(outcome: Outcome, source: SourceFile, command: bool) -> list[Problem]:
    """What keeps a program, or kernels in it, from being seen at all."""
    path = source.path
    report = (reports_of_one([path], outcome) if command else reports_of(path, outcome, [path]))[path]
    if not report.reason or "caught by the program" in report.reason:
        return []
    declared = next((Span(k.path, k.line) for k in outcome.last.declared if k.path == path), Span(path, 1))
    at = outcome.last.span if outcome.last.span and outcome.last.span.path == path else declared
    return [Problem(_to_line_end(at, source), f"mgpu-fix: {report.reason}", Severity.INFORMATION)]
