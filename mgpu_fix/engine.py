"""The search: try fixes, keep what a run proves, undo only what it does not.

Pure over a :class:`Runner`: it reads no file, starts no process and writes nothing, so that a scripted runner tests it.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mgpu_fix import verify
from mgpu_fix.account import BY, Account, Diagnosis, Outcome, Step, Way, first_line, level_of
from mgpu_fix.catalogue import Catalogue
from mgpu_fix.levels import VerifiedBy, weakest
from mgpu_fix.model import Candidate, Check, Edit, Fix, Observation, digest, duration
from mgpu_fix.problems import (
    FASTEST,
    KEPT,
    SEEN,
    Option,
    Options,
    Place,
    Problem,
    Problems,
    change_of,
    mark_counts,
    mark_of,
    path_of,
    places_of,
)
from mgpu_fix.source import Overlap, SourceError, SourceFile, merge_edits

#: how a run ends that proves nothing
_UNSEEN = ("timeout", "crashed", "blocked")
#: how much less time another fix must take to be worth it; two runs of one kernel differ by some of it
_WORTH = 0.97


class Runner(Protocol):
    """Runs the program with other texts in place of what the disk holds."""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        """One run. ``draws`` are kernel-call keys to run on one more draw of inputs, each as often as there are kernels
        of these calls; None: those that fail."""
        ...


@dataclass(frozen=True)
class _Ban:
    """A step that led to no proven kernel, or that nobody wants, and why. ``after`` are the steps of its chain before
    it: after others it may do; None where it is not to be taken at all."""

    step: Step
    reason: str
    after: tuple[Step, ...] | None

    def forbids(self, problem: Problem, candidate: Candidate, steps: Sequence[Step]) -> bool:
        """Whether it is this step that ``candidate`` would take after ``steps``."""
        same = problem.mark in self.step.marks and candidate.title == self.step.option.candidate.title
        kernel = problem.failure.kernel
        return same and (self.after is None or _taken(self.after, kernel) == _taken(steps, kernel))


def _taken(steps: Sequence[Step], kernel: str) -> list[tuple[frozenset[str], str]]:
    """What the steps of one kernel are known by."""
    return [(step.marks, step.option.candidate.title) for step in steps if kernel in step.kernels]


@dataclass(frozen=True)
class _Found:
    """Where a search ends: the texts, their run, the steps that led there, and the run that has the numbers."""

    texts: dict[str, SourceFile]
    last: Observation
    steps: list[Step]
    baseline: Observation


class Engine:
    """Repairs one program. ``sources`` are the files that may be edited, by real path."""

    def __init__(
        self,
        run: Runner,
        catalogue: Catalogue,
        sources: Mapping[str, SourceFile],
        options: Options = Options(),
        compare: verify.Compare = verify.compare_files,
        progress: Callable[[str], None] = lambda text: None,
        golden: verify.Golden | None = None,
        accept: Callable[[Fix], bool] = lambda fix: True,
    ) -> None:
        self.run, self.catalogue, self.options = run, catalogue, options
        self.originals, self.compare, self.progress = dict(sources), compare, progress
        self.golden, self.accept = golden, accept
        self.first: Observation = Observation("ok")
        #: what numbers are held against: the first run that comes to a kernel
        self.baseline: Observation = self.first
        self._memo: dict[str, Observation] = {}
        self._known = Problems(catalogue, options, golden)
        self._bans: list[_Ban] = []
        #: steps that were proven, and asked about; and those of them that nobody wants
        self._asked: dict[tuple[frozenset[str], str], bool] = {}
        self._declined: list[_Ban] = []
        #: steps in whose place others are timed
        self._outpaced: list[_Ban] = []

    def diagnose(self) -> Outcome:
        """Run once and say what fails; try nothing."""
        self.first = self.baseline = self._observe(self.originals)
        return self._outcome(self.originals, self.first, (), self._problems(self.first, self.originals, {}))

    def diagnoses(self) -> list[Diagnosis]:
        """What fails in the program as it was given; to be asked for after :meth:`diagnose` or :meth:`repair`."""
        found, hopeless = [], self._hopeless()
        account = self._account(self.first)
        for problem in self._problems(self.first, self.originals, {}):
            outcomes = {tried.title: tried.outcome for tried in problem.tried}
            path = path_of(problem.failure)
            ways = tuple(
                Way(o.candidate, o.applicability, path, outcomes.get(o.candidate.title, "")) for o in problem.options
            )
            reason = hopeless.get(problem.mark) or account.remaining(problem, self.originals).reason
            found.append(Diagnosis(problem.failure, problem.rule, problem.mark, ways, reason))
        return found

    def fixed(self, outcome: Outcome) -> set[str]:
        """Marks of the failures that an outcome leaves nothing of."""
        return {*mark_counts(outcome.first, self.catalogue)} - {*mark_counts(outcome.last, self.catalogue)}

    def repair(self, only: Collection[str] | None = None) -> Outcome:
        """Search until nothing more can be fixed; every fix in the outcome was proven by a run.

        ``only`` leaves all failures of the program as they are but those of these marks, and what comes after them.
        """
        self.first = self._observe(self.originals)
        excluded: dict[str, str] = {}
        if only is not None:
            excluded = dict.fromkeys({*mark_counts(self.first, self.catalogue)}.difference(only), "not asked for")
        excluded |= self._hopeless()
        while True:
            found = self._proven(excluded)
            if self.options.prefer == FASTEST:
                found = self._fastest(found, excluded)
            unwanted = self._unwanted(found.steps, found.last)
            if unwanted is None:
                break
            self._declined.append(unwanted)
            self._outpaced = []
        left = self._problems(found.last, found.texts, excluded, found.steps)
        return self._outcome(found.texts, found.last, found.steps, left)

    def _proven(self, excluded: Mapping[str, str]) -> _Found:
        """A search whose every step ends in proven kernels."""
        while True:
            found = self._search(excluded)
            ban = self._unproven(found.steps, found.last)
            if ban is None:
                return found
            # Another fix gets its turn in the chain of an unproven kernel. Where none is left the whole chain goes,
            # step by step from its end; what the others need is found again without it.
            last_step = ban.step
            again = self._banned(ban.after or (), last_step.problem, last_step.option.candidate)
            self._bans.append(replace(ban, after=None) if again else ban)

    def _fastest(self, found: _Found, excluded: Mapping[str, str]) -> _Found:
        """``found``, with another fix in the place of each step where one is proven as well and takes less time."""
        done: set[frozenset[str]] = set()
        while step := next((s for s in found.steps if s.marks not in done and self._seconds(found, s)), None):
            done.add(step.marks)
            options, before, best = step.problem.options, list(self._outpaced), step
            for way in options:
                title = way.candidate.title
                if title == step.option.candidate.title or not step.option.applicability.allows(way.applicability):
                    continue
                bans = list(self._bans)
                self._outpaced = [*before, *_all_but(title, step)]
                rival = self._proven(excluded)
                mine = next(
                    (s for s in rival.steps if s.option.candidate.title == title and s.marks & step.marks), None
                )
                if mine and self._is_faster(rival, mine, found, best):
                    found, best = rival, mine
                else:
                    self._bans = bans
            self._outpaced = before if best is step else [*before, *_all_but(best.option.candidate.title, step)]
        self.baseline = found.baseline
        return found

    def _is_faster(self, rival: _Found, mine: Step, found: _Found, step: Step) -> bool:
        """Whether ``mine`` in ``rival`` leaves no more than ``step`` in ``found`` and is proven as well, in less
        time."""
        left, had = (mark_counts(f.last, self.catalogue) for f in (rival, found))
        level, least = self._level(rival, mine), self._level(found, step)
        now, was = self._seconds(rival, mine), self._seconds(found, step)
        if left - had or not level.satisfies(least) or now is None or was is None:
            return False
        slower, longer, shorter = (step, was, now) if now < was * _WORTH else (mine, now, was)
        told = f"proven, too, and takes {duration(longer)} on the GPU, the one that is kept {duration(shorter)}"
        self._known.note(slower.problem, slower.option.candidate, told)
        return slower is step

    def _level(self, found: _Found, step: Step) -> VerifiedBy:
        """What proves the kernels of a step."""
        return weakest(level_of(v, v.after) for v in verify.telling(self._verdicts_on(found, step)) if v.after)

    def _seconds(self, found: _Found, step: Step) -> float | None:
        """What the kernels of a step take on the GPU, None where that is not known of all."""
        calls = [v.after for v in verify.telling(self._verdicts_on(found, step))]
        times = [call.gpu_seconds for call in calls if call is not None and call.gpu_seconds is not None]
        return sum(times) if times and len(times) == len(calls) else None

    def _verdicts_on(self, found: _Found, step: Step) -> list[verify.CallVerdict]:
        """Verdicts on the kernels of a step."""
        verdicts = verify.judge(found.baseline, found.last, self.compare, self.golden)
        return [v for v in verdicts if step.kernels & v.names]

    def _hopeless(self) -> dict[str, str]:
        """Marks of failures that no fix can be proven for, and why."""
        if self.first.status not in _UNSEEN:
            return {}
        # What a program does that never comes to its end, nobody can hold against another run.
        reason = f"not tried, since the program cannot be run to its end: {self.first.reason}"
        return dict.fromkeys(mark_counts(self.first, self.catalogue), reason)

    def _problems(
        self,
        observation: Observation,
        texts: Mapping[str, SourceFile],
        excluded: Mapping[str, str],
        steps: Sequence[Step] = (),
    ) -> list[Problem]:
        banned = functools.partial(self._banned, steps)
        return self._known.of(observation, texts, self.baseline, excluded, banned)

    def _banned(self, steps: Sequence[Step], problem: Problem, candidate: Candidate) -> str:
        """Why a candidate is not to be taken behind ``steps``; empty if it may be."""
        bans = (b for b in (*self._declined, *self._outpaced, *self._bans) if b.forbids(problem, candidate, steps))
        return next((ban.reason for ban in bans), "")

    def _account(self, last: Observation) -> Account:
        return Account(self.originals, self.options, self.baseline, last, self._verdicts(last))

    def _outcome(
        self, texts: dict[str, SourceFile], last: Observation, steps: Sequence[Step], problems: Sequence[Problem]
    ) -> Outcome:
        strays = verify.strays(last, self.compare, self.golden)
        return self._account(last).outcome(self.first, texts, steps, problems, strays)

    # ------------------------------------------------------------------ runs

    def _observe(self, texts: Mapping[str, SourceFile]) -> Observation:
        key = _name(texts)
        if key not in self._memo:
            draws = None
            if self.baseline.calls:
                # A golden may hold a draw of a kernel that has no numbers yet.
                mine = (
                    c for c in self.baseline.calls if any(n.draw for n in c.numbers) or (self.golden and c.failures)
                )
                draws = tuple(c.key for c in mine)
            changed = {p: s.data for p, s in texts.items() if s.data != self.originals[p].data}
            self.progress("observing the program" if not self._memo else f"checking fix {len(self._memo)}")
            self._memo[key] = self._named_as_before(self.run(changed, draws))
        return self._memo[key]

    def _named_as_before(self, observation: Observation) -> Observation:
        """A run in whose failures and checks a kernel that a fix gave another name has the one that it had."""
        known = {call.name for call in self.baseline.calls}
        names = {a.name: b.name for b, a in verify.pairs(self.baseline, observation) if a and a.name not in known}
        if not names:
            return observation
        failures = tuple(replace(f, kernel=names.get(f.kernel, f.kernel)) for f in observation.failures)
        checks = tuple(replace(c, kernels=tuple(names.get(k, k) for k in c.kernels)) for c in observation.checks)
        return replace(observation, failures=failures, checks=checks)

    # ------------------------------------------------------------------ search

    def _search(self, excluded: Mapping[str, str]) -> _Found:
        texts, last = dict(self.originals), self.first
        self.baseline = self.first
        steps: list[Step] = []
        visited = {_name(texts)}
        fewest, idle = len(last.failures), 0
        while idle < self.options.max_iterations:
            problems = [p for p in self._problems(last, texts, excluded, steps) if self.options.allowed(p)]
            for group in self._groups(problems):
                result = self._attempt(group, texts, last, visited, steps)
                if result is not None:
                    texts, last, made = result
                    steps += made
                    if not self.baseline.calls:
                        self.baseline = last
                    break
            else:
                break
            idle = 0 if len(last.failures) < fewest else idle + 1
            fewest = min(fewest, len(last.failures))
        return _Found(texts, last, steps, self.baseline)

    def _groups(self, problems: list[Problem]) -> Iterator[list[tuple[Problem, Option]]]:
        """What to try next: every problem's first untried fix together, then each fix alone.

        Alone means one text: a fix that answers several problems, as a rename does, answers all of them at once.
        """
        together = []
        for problem in problems:
            failed = {t.title for t in problem.tried if t.outcome != KEPT}
            together += [(problem, o) for o in self.options.allowed(problem) if o.candidate.title not in failed][:1]
        if len({change_of(p, o) for p, o in together}) > 1:
            yield together
        done = set()
        for problem in problems:
            for option in self.options.allowed(problem):
                change = change_of(problem, option)
                if change not in done:
                    done.add(change)
                    yield [(p, o) for p in problems for o in self.options.allowed(p) if change_of(p, o) == change]

    def _attempt(
        self,
        group: list[tuple[Problem, Option]],
        texts: dict[str, SourceFile],
        last: Observation,
        visited: set[str],
        before: Sequence[Step],
    ) -> tuple[dict[str, SourceFile], Observation, list[Step]] | None:
        """The state after the group's edits if a run approves of them, else None."""

        alone = len({change_of(p, o) for p, o in group}) == 1

        def say(outcome: str) -> None:
            for problem, option in group if alone else ():
                self._known.note(problem, option.candidate, outcome)

        by_path: dict[str, list[tuple[Problem, Option]]] = {}
        for problem, option in group:
            by_path.setdefault(path_of(problem.failure), []).append((problem, option))
        new = dict(texts)
        made: dict[str, Sequence[Edit]] = {}
        try:
            for path, members in by_path.items():
                made[path] = merge_edits([o.candidate.edits for _, o in members])
                new[path] = texts[path].edited(made[path])
        except Overlap:
            return None
        except SourceError as e:
            say(f"the result does not parse: {e}")
            return None
        key = _name(new)
        if key in visited:
            say(SEEN)
            return None
        visited.add(key)
        observation = self._observe(new)
        places = places_of(last, texts, texts, {}), places_of(observation, new, texts, made)
        fault = self._fault(group, last, observation, places)
        if fault:
            say(fault)
            return None
        steps: list[Step] = []
        for problem, option in group:
            change = change_of(problem, option)
            answered = [p for p, o in group if change_of(p, o) == change]
            kernels = frozenset(p.failure.kernel for p in answered if p.failure.kernel)
            marks = frozenset(p.mark for p in answered)
            source = texts[path_of(problem.failure)]
            if any(s.edits == option.candidate.edits and s.before is source for s in steps):
                continue
            if self._banned((*before, *steps), problem, option.candidate):
                return None
            self._known.note(problem, option.candidate, KEPT)
            steps.append(Step(problem, option, source, option.candidate.edits, kernels, marks))
        return new, observation, steps

    def _fault(
        self,
        group: list[tuple[Problem, Option]],
        before: Observation,
        after: Observation,
        places: tuple[Sequence[Place], Sequence[Place]],
    ) -> str:
        """Why the run ``after`` does not approve of the group's edits; empty if it does. ``places`` are those of the
        failures of both runs, in the text before."""
        if after.status in _UNSEEN:
            return f"the program then fails to run: {after.reason}"
        left = mark_counts(after, self.catalogue)
        had = mark_counts(before, self.catalogue)
        for problem, _ in group:
            if left.get(problem.mark, 0) >= had.get(problem.mark, 1):
                was, now = (self._places(problem.mark, *run) for run in zip((before, after), places, strict=True))
                # JAX stops at the first of several that are alike, so the next one only shows when that is gone.
                if sum(place is None or place in was for place in now) >= len(was):
                    return "the error is still there"
        # Numbers are held against the baseline, whose intended trace is what the author meant.
        for held in (self.baseline, before):
            for verdict in verify.judge(held, after, self.compare, self.golden):
                if verdict.lost:
                    return verdict.lost
        failed = {check.name for check in _failing(before)}
        for check in _failing(after):
            if check.name not in failed and not check.unproven:
                what = f"{check.name} then fails" if check.name else "the program then stops"
                return f"{what}: {check.reason or _new_error(before, after)}"
        return ""

    def _places(self, mark: str, run: Observation, places: Sequence[Place]) -> list[Place]:
        """Where the failures of one mark are."""
        found = zip(run.failures, places, strict=True)
        return [place for failure, place in found if mark_of(failure, self.catalogue.match(failure)) == mark]

    # ------------------------------------------------------------------ verdicts

    def _verdicts(self, last: Observation) -> list[verify.CallVerdict]:
        return verify.judge(self.baseline, last, self.compare, self.golden)

    def _unproven(self, steps: list[Step], last: Observation) -> _Ban | None:
        """The last step of a chain that did not end in a proven kernel, with what is missing; None if all did."""
        verdicts = self._verdicts(last)
        for step in steps:
            disproof = _disproof(last, step.kernels)
            # What stopped the program before any kernel is proven by those that are then called.
            kernels = step.kernels or {c.name for c in self.baseline.calls} - {c.name for c in self.first.calls}
            missing = [self._missing(kernel, step, verdicts, last) for kernel in sorted(kernels)] or [
                "no kernel was called that proves it; name one with --call"
            ]
            missing = [disproof] if disproof else missing
            if all(missing):
                chain = [s for s in steps if s.kernels & step.kernels] or [step]
                self._known.note(chain[-1].problem, chain[-1].option.candidate, f"undone: {missing[0]}")
                return _Ban(chain[-1], f"its fix was undone: {missing[0]}", tuple(chain[:-1]))
        return None

    def _unwanted(self, steps: Sequence[Step], last: Observation) -> _Ban | None:
        """The first step whose fix is not accepted, None if all are; nothing is asked about twice."""
        account = self._account(last)
        for i, step in enumerate(steps):
            key = step.marks, step.option.candidate.title
            if key not in self._asked:
                self._asked[key] = self.accept(account.fix(step, steps[i + 1 :]))
            if not self._asked[key]:
                self._known.note(step.problem, step.option.candidate, "declined")
                return _Ban(step, "declined", None)
        return None

    def _missing(
        self,
        kernel: str,
        step: Step,
        verdicts: Iterable[verify.CallVerdict],
        last: Observation,
    ) -> str:
        """What keeps a kernel from being proven, empty if it is."""
        mine = [v for v in verdicts if v.before.name == kernel and v.after is not None]
        if not mine:
            f = next((f for f in last.failures if f.kernel == kernel and not f.caught), None)
            ends = f"stops with {f.type}: {first_line(f.message)}" if f else "is never called; name it with --call"
            return f"{kernel} {ends}"
        telling = verify.telling(mine)
        for verdict in mine:
            assert verdict.after is not None
            if verdict.after.failures:
                f = last.failures[verdict.after.failures[0]]
                return f"{kernel} then stops with {f.type}: {first_line(f.message)}"
            if verdict.after.stage != "run":
                return f"{kernel} comes no further than {verdict.after.stage}"
            if verdict.after.gpu_fault:
                return f"{kernel} fails on the GPU: {verdict.after.gpu_fault}"
            if verdict.after is verdict.before and verify.fault(verdict.after):
                # There was no run before it that could have come further.
                return f"{kernel} does not come to its end: {verify.fault(verdict.after)}"
            if verdict.after.unwritten or verdict.hollow:
                return f"{kernel} then has an output that nothing writes to"
            if verdict not in telling:
                continue
            doubt = verify.doubt(verdict.after)
            if doubt and not self.options.unsafe:
                return f"its numbers prove nothing, since {doubt}"
            if step.option.candidate.needs_oracle and not self.options.unsafe:
                if verdict.agrees is None:
                    return f"no numbers prove it: {verdict.why}"
                if verdict.uniform:
                    return f"its numbers prove little: every operand of {kernel} holds one value only"
            level, least = level_of(verdict, verdict.after), self.options.require
            if not level.satisfies(least) or (least is VerifiedBy.COMPILED and not verdict.after.resources):
                why = f" ({verdict.after.uncompiled})" if verdict.after.uncompiled else ""
                return f"{kernel} is proven by {BY[level]} only{why}, --require {least.value} asks for more"
        return ""


def _all_but(title: str, step: Step) -> list[_Ban]:
    """Bans on all ways to answer a step's problem but one."""
    others = [o for o in step.problem.options if o.candidate.title != title]
    return [_Ban(replace(step, option=o), "another fix takes its turn on the GPU", None) for o in others]


def _failing(observation: Observation) -> tuple[Check, ...]:
    """The program's checks that fail: its tests, or the one that it is itself."""
    if observation.checks or observation.status != "stopped":
        return observation.checks
    kernels = tuple(c.name for c in observation.calls)
    return (Check("", observation.reason, observation.span, kernels, _tainted(observation)),)


def _new_error(before: Observation, after: Observation) -> str:
    """An error that only the run ``after`` shows."""
    known = {(f.type, f.message) for f in before.failures}
    new = next((f for f in after.failures if (f.type, f.message) not in known), None)
    return f"{new.type}: {first_line(new.message)}" if new else "at another error"


def _disproof(last: Observation, kernels: frozenset[str]) -> str:
    """The program's own check that fails although the numbers of all kernels that it looks at are known, among them
    some of ``kernels``; empty if there is none."""
    for check in _failing(last):
        concerns = not check.name or not kernels or not kernels.isdisjoint(check.kernels)
        if check.reason.startswith("AssertionError") and concerns and not check.unproven:
            name = f"{check.name}: " if check.name else ""
            return f"the program's own check fails with it: {name}{check.reason}"
    return ""


def _name(texts: Mapping[str, SourceFile]) -> str:
    return digest(b"\0".join(p.encode("utf-8", "surrogateescape") + b"\0" + s.data for p, s in sorted(texts.items())))


def _tainted(observation: Observation) -> bool:
    return any(n.state != "known" for c in observation.calls for n in c.numbers)
