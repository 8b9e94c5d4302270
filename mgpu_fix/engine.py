"""The search: try fixes, keep what a run proves, undo only what it does not.

Pure over a :class:`Runner`: it reads no file, starts no process and writes nothing, so that a scripted runner tests it.
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from mgpu_fix import verify
from mgpu_fix.catalogue import Catalogue, NoFix, Rule
from mgpu_fix.levels import Applicability, Oracle, VerifiedBy, weakest
from mgpu_fix.model import (
    Candidate,
    Check,
    Edit,
    Failure,
    Fix,
    KernelCall,
    Observation,
    ProvenKernel,
    Referred,
    Remaining,
    Tried,
    digest,
)
from mgpu_fix.source import Overlap, SourceError, SourceFile, line_before, merge_edits, unified_diff

#: how a run ends that proves nothing
_UNSEEN = ("timeout", "crashed", "blocked")
#: outcome of a candidate that a run approved of, and of one that needs none
KEPT = "kept"
_SEEN = "it leads back to a text that was tried"


class Runner(Protocol):
    """Runs the program with other texts in place of what the disk holds."""

    def __call__(self, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        """One run. ``draws`` are kernel-call keys to run on one more draw of inputs, each as often as there are kernels
        of these calls; None: those that fail."""
        ...


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
class Finding:
    """A failure of the program as it was given, and the ways to fix it, best first; ``reason`` is why it remains."""

    failure: Failure
    rule: Rule | None
    mark: str
    ways: tuple[Way, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class _Option:
    """A candidate of one problem, with how safe it is where numbers can (not) be compared."""

    candidate: Candidate
    applicability: Applicability


@dataclass
class _Problem:
    """A failure that is there now, its rule, and what can be tried."""

    failure: Failure
    rule: Rule | None
    mark: str
    options: list[_Option] = field(default_factory=list)
    reason: str = ""
    tried: list[Tried] = field(default_factory=list)
    ignored: bool = False


@dataclass(frozen=True)
class _Step:
    """An accepted candidate: the problem it answers and the text it was applied to."""

    problem: _Problem
    option: _Option
    before: SourceFile
    edits: tuple[Edit, ...]
    kernels: frozenset[str]
    marks: frozenset[str]


@dataclass(frozen=True)
class _Ban:
    """A step that led to no proven kernel, the ``depth``-th of its chain, and why."""

    depth: int
    step: _Step
    reason: str

    def forbids(self, mark: str, candidate: Candidate) -> bool:
        """Whether it is this step that ``candidate`` would take."""
        return mark in self.step.marks and candidate.title == self.step.option.candidate.title


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
        self._tried: dict[str, list[Tried]] = {}
        self._bans: list[_Ban] = []
        #: steps that were proven, and asked about; and those of them that nobody wants
        self._asked: dict[tuple[frozenset[str], str], bool] = {}
        self._declined: list[_Ban] = []

    def diagnose(self) -> Outcome:
        """Run once and say what fails; try nothing."""
        self.first = self.baseline = self._observe(self.originals)
        return self._outcome(self.originals, self.first, (), self._problems(self.first, self.originals, {}))

    def findings(self) -> list[Finding]:
        """What fails in the program as it was given; to be asked for after :meth:`diagnose` or :meth:`repair`."""
        found, hopeless = [], self._hopeless()
        for problem in self._problems(self.first, self.originals, {}):
            outcomes = {tried.title: tried.outcome for tried in problem.tried}
            path = _path(problem.failure)
            ways = tuple(
                Way(o.candidate, o.applicability, path, outcomes.get(o.candidate.title, "")) for o in problem.options
            )
            reason = hopeless.get(problem.mark) or self._remaining(problem, self.originals).reason
            found.append(Finding(problem.failure, problem.rule, problem.mark, ways, reason))
        return found

    def fixed(self, outcome: Outcome) -> set[str]:
        """Marks of the failures that an outcome leaves nothing of."""
        return {*_count(outcome.first, self.catalogue)} - {*_count(outcome.last, self.catalogue)}

    def repair(self, only: Collection[str] | None = None) -> Outcome:
        """Search until nothing more can be fixed; every fix in the outcome was proven by a run.

        ``only`` leaves all failures of the program as they are but those of these marks, and what comes after them.
        """
        self.first = self._observe(self.originals)
        excluded: dict[str, str] = {}
        if only is not None:
            excluded = dict.fromkeys({*_count(self.first, self.catalogue)}.difference(only), "not asked for")
        excluded |= self._hopeless()
        while True:
            texts, last, steps = self._search(excluded)
            ban = self._unproven(steps, last)
            if ban is None:
                unwanted = self._unwanted(steps, last)
                if unwanted is None:
                    break
                self._declined.append(unwanted)
                continue
            # Another fix gets its turn in the chain of an unproven kernel. Where none is left the whole chain goes,
            # step by step from its end; what the others need is found again without it.
            self._ban(ban)
        return self._outcome(texts, last, steps, self._problems(last, texts, excluded))

    def _hopeless(self) -> dict[str, str]:
        """Marks of failures that no fix can be proven for, and why."""
        if self.first.status not in _UNSEEN:
            return {}
        # What a program does that never comes to its end, nobody can hold against another run.
        reason = f"not tried, since the program cannot be run to its end: {self.first.reason}"
        return dict.fromkeys(_count(self.first, self.catalogue), reason)

    def _outcome(
        self,
        texts: dict[str, SourceFile],
        last: Observation,
        steps: Sequence[_Step],
        problems: Sequence[_Problem],
    ) -> Outcome:
        remaining = tuple(self._remaining(p, texts) for p in problems if not p.ignored)
        fixes = tuple(self._fix(step, last, steps[i + 1 :]) for i, step in enumerate(steps))
        fixed = frozenset(itertools.chain.from_iterable(step.kernels for step in steps))
        strays = [(v, self._stray(v)) for v in verify.strays(last, self.compare, self.golden)]
        given = {r.reference for r in last.referred if r.given}
        notes = tuple(told for v, told in strays if v.oracle is Oracle.REFERENCE and not given)
        notes += tuple(self._remaining(p, texts) for p in problems if p.ignored)
        notes += tuple(_unused(r) for r in last.referred if r.given and r.agrees is None)
        remaining += tuple(told for _, told in strays if told not in notes)
        return Outcome(texts, self.first, last, fixes, remaining, self._proofs(last, fixed), notes)

    def _stray(self, verdict: verify.CallVerdict) -> Remaining:
        """A kernel that nothing fails in, and whose numbers are not those that they should be."""
        golden = verdict.oracle is Oracle.GOLDEN
        kind = "GoldenMismatch" if golden else "ReferenceMismatch"
        reason = "no error explains it" + ("; if it is right, golden record takes it" if golden else "")
        span = verdict.before.span
        path, line = (span.path, span.line) if span else ("", None)
        name = verdict.before.name
        return Remaining(None, "compare", kind, verdict.lost, path, line, None, reason=reason, kernel=name)

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

    def _problems(
        self, observation: Observation, texts: Mapping[str, SourceFile], excluded: Mapping[str, str]
    ) -> list[_Problem]:
        problems: dict[str, _Problem] = {}
        for failure in observation.failures:
            rule = self.catalogue.match(failure)
            mark = _mark(failure, rule)
            if mark in problems:
                continue
            problem = problems[mark] = _Problem(failure, rule, mark, tried=self._tried.setdefault(mark, []))
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
                self._propose(problem, rule, texts)
        return list(problems.values())

    def _propose(self, problem: _Problem, rule: Rule, texts: Mapping[str, SourceFile]) -> None:
        failure = problem.failure
        path = _path(failure)
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
        calls = [c for c in self.baseline.calls if c.name == failure.kernel]
        oracle = bool(calls) and all(verify.has_oracle(c, self.baseline, self.golden) for c in calls)
        doubtful = any(verify.races(c) or verify.doubt(c) for c in calls)
        for candidate in sorted(candidates, key=lambda c: c.name != self.options.prefer):
            level = candidate.applicability
            if level is Applicability.SAFE and (
                (candidate.needs_oracle and not oracle)
                or (doubtful and not candidate.orders)
                or _loses_comment(source, candidate)
            ):
                level = Applicability.UNSAFE
            bans = (b for b in (*self._declined, *self._bans) if b.forbids(problem.mark, candidate))
            ban = next(bans, None)
            if ban is None:
                problem.options.append(_Option(candidate, level))
            else:
                problem.reason = ban.reason
        if self._allowed(problem):
            problem.reason = ""

    # ------------------------------------------------------------------ search

    def _search(self, excluded: Mapping[str, str]) -> tuple[dict[str, SourceFile], Observation, list[_Step]]:
        texts, last = dict(self.originals), self.first
        self.baseline = self.first
        steps: list[_Step] = []
        visited = {_name(texts)}
        fewest, idle = len(last.failures), 0
        while idle < self.options.max_iterations:
            problems = [p for p in self._problems(last, texts, excluded) if self._allowed(p)]
            for group in self._groups(problems):
                result = self._attempt(group, texts, last, visited)
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
        return texts, last, steps

    def _groups(self, problems: list[_Problem]) -> Iterator[list[tuple[_Problem, _Option]]]:
        """What to try next: every problem's first untried fix together, then each fix alone.

        Alone means one text: a fix that answers several problems, as a rename does, answers all of them at once.
        """
        together = []
        for problem in problems:
            failed = {t.title for t in problem.tried if t.outcome != KEPT}
            together += [(problem, o) for o in self._allowed(problem) if o.candidate.title not in failed][:1]
        if len({_change(p, o) for p, o in together}) > 1:
            yield together
        done = set()
        for problem in problems:
            for option in self._allowed(problem):
                change = _change(problem, option)
                if change not in done:
                    done.add(change)
                    yield [(p, o) for p in problems for o in self._allowed(p) if _change(p, o) == change]

    def _allowed(self, problem: _Problem) -> list[_Option]:
        least = Applicability.UNSAFE if self.options.unsafe else Applicability.SAFE
        return [o for o in problem.options if least.allows(o.applicability)]

    def _attempt(
        self,
        group: list[tuple[_Problem, _Option]],
        texts: dict[str, SourceFile],
        last: Observation,
        visited: set[str],
    ) -> tuple[dict[str, SourceFile], Observation, list[_Step]] | None:
        """The state after the group's edits if a run approves of them, else None."""

        alone = len({_change(p, o) for p, o in group}) == 1

        def say(outcome: str) -> None:
            for problem, option in group if alone else ():
                self._note(problem, option.candidate, outcome)

        by_path: dict[str, list[tuple[_Problem, _Option]]] = {}
        for problem, option in group:
            by_path.setdefault(_path(problem.failure), []).append((problem, option))
        new = dict(texts)
        try:
            for path, members in by_path.items():
                edits = merge_edits([o.candidate.edits for _, o in members])
                new[path] = texts[path].edited(edits)
        except Overlap:
            return None
        except SourceError as e:
            say(f"the result does not parse: {e}")
            return None
        key = _name(new)
        if key in visited:
            say(_SEEN)
            return None
        visited.add(key)
        observation = self._observe(new)
        fault = self._fault(group, last, observation)
        if fault:
            say(fault)
            return None
        steps: list[_Step] = []
        for problem, option in group:
            change = _change(problem, option)
            answered = [p for p, o in group if _change(p, o) == change]
            kernels = frozenset(p.failure.kernel for p in answered if p.failure.kernel)
            marks = frozenset(p.mark for p in answered)
            source = texts[_path(problem.failure)]
            if any(s.edits == option.candidate.edits and s.before is source for s in steps):
                continue
            self._note(problem, option.candidate, KEPT)
            steps.append(_Step(problem, option, source, option.candidate.edits, kernels, marks))
        return new, observation, steps

    def _note(self, problem: _Problem, candidate: Candidate, outcome: str) -> None:
        entry, known = Tried(candidate.title, outcome), self._tried.setdefault(problem.mark, [])
        told = any(t.title == entry.title and t.outcome != KEPT for t in known)
        if entry not in known and not (told and outcome == _SEEN):
            known.append(entry)

    def _fault(self, group: list[tuple[_Problem, _Option]], before: Observation, after: Observation) -> str:
        """Why the run ``after`` does not approve of the group's edits; empty if it does."""
        if after.status in _UNSEEN:
            return f"the program then fails to run: {after.reason}"
        left = _count(after, self.catalogue)
        had = _count(before, self.catalogue)
        for problem, _ in group:
            if left.get(problem.mark, 0) >= had.get(problem.mark, 1):
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

    # ------------------------------------------------------------------ verdicts

    def _verdicts(self, last: Observation) -> list[verify.CallVerdict]:
        return verify.judge(self.baseline, last, self.compare, self.golden)

    def _unproven(self, steps: list[_Step], last: Observation) -> _Ban | None:
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
                self._note(chain[-1].problem, chain[-1].option.candidate, f"undone: {missing[0]}")
                return _Ban(len(chain), chain[-1], f"its fix was undone: {missing[0]}")
        return None

    def _unwanted(self, steps: Sequence[_Step], last: Observation) -> _Ban | None:
        """The first step whose fix is not accepted, None if all are; nothing is asked about twice."""
        for i, step in enumerate(steps):
            key = step.marks, step.option.candidate.title
            if key not in self._asked:
                self._asked[key] = self.accept(self._fix(step, last, steps[i + 1 :]))
            if not self._asked[key]:
                self._note(step.problem, step.option.candidate, "declined")
                return _Ban(0, step, "declined")
        return None

    def _ban(self, ban: _Ban) -> None:
        """Never take a step again after those before it. What failed after it may do after another one."""
        kernels = ban.step.kernels
        self._bans = [b for b in self._bans if b.depth <= ban.depth or not (b.step.kernels & kernels)]
        self._bans.append(ban)

    def _missing(
        self,
        kernel: str,
        step: _Step,
        verdicts: Iterable[verify.CallVerdict],
        last: Observation,
    ) -> str:
        """What keeps a kernel from being proven, empty if it is."""
        mine = [v for v in verdicts if v.before.name == kernel and v.after is not None]
        if not mine:
            f = next((f for f in last.failures if f.kernel == kernel and not f.caught), None)
            ends = f"stops with {f.type}: {_first_line(f.message)}" if f else "is never called; name it with --call"
            return f"{kernel} {ends}"
        for verdict in mine:
            assert verdict.after is not None
            if verdict.after.failures:
                f = last.failures[verdict.after.failures[0]]
                return f"{kernel} then stops with {f.type}: {_first_line(f.message)}"
            if verdict.after.stage != "run":
                return f"{kernel} comes no further than {verdict.after.stage}"
            if verdict.after.unwritten or verdict.hollow:
                return f"{kernel} then has an output that nothing writes to"
            doubt = verify.doubt(verdict.after)
            if doubt and not self.options.unsafe:
                return f"its numbers prove nothing, since {doubt}"
            if step.option.candidate.needs_oracle and not self.options.unsafe:
                if verdict.agrees is None:
                    return f"no numbers prove it: {verdict.why}"
                if verdict.uniform:
                    return f"its numbers prove little: every operand of {kernel} holds one value only"
            level, least = _level(verdict.oracle if verdict.agrees else None, verdict.after), self.options.require
            if not level.satisfies(least) or (least is VerifiedBy.COMPILED and not verdict.after.resources):
                why = f" ({verdict.after.uncompiled})" if verdict.after.uncompiled else ""
                return f"{kernel} is proven by {_BY[level]} only{why}, --require {least.value} asks for more"
        return ""

    def _fix(self, step: _Step, last: Observation, later: Sequence[_Step]) -> Fix:
        verdicts = [v for v in self._verdicts(last) if step.kernels & {v.before.name, v.after.name if v.after else ""}]
        proofs = [(v, v.after) for v in verdicts if v.after]
        level = weakest(_level(v.oracle if v.agrees else None, after) for v, after in proofs)
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

    def _remaining(self, problem: _Problem, texts: Mapping[str, SourceFile]) -> Remaining:
        failure, reason = problem.failure, problem.reason
        tried = {t.title for t in problem.tried}
        if not reason and problem.tried:
            reason = "no fix held: " + "; ".join(f"{t.title}: {t.outcome}" for t in problem.tried if t.outcome != KEPT)
        best = next((o for o in problem.options if o.candidate.title not in tried), None)
        if best is not None and best in self._allowed(problem):
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

    def _why_unsafe(self, option: _Option, failure: Failure) -> str:
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

    def _proofs(self, last: Observation, fixed: frozenset[str]) -> tuple[ProvenKernel, ...]:
        verdicts = {id(v.after): v for v in self._verdicts(last) if v.after is not None}
        # A fix may put the kernel into a function of another name.
        judged = [(call, verdicts.get(id(call))) for call in last.calls]
        return tuple(self._proof(call, v, (v.before if v else call).name in fixed) for call, v in judged)

    def _proof(self, call: KernelCall, verdict: verify.CallVerdict | None, fixed: bool) -> ProvenKernel:
        # That a kernel which nothing changed computes what it did proves nothing.
        held = verdict is not None and (fixed or verdict.oracle is not Oracle.ORIGINAL)
        oracle = verdict.oracle if verdict is not None and held and verdict.agrees else None
        level = None
        if call.stage == "run" and not call.failures:
            level = _level(oracle, call)
        inputs = ", ".join(call.avals) or "no operands"
        note = ""
        if held and verdict is not None:
            if verdict.agrees:
                data = "your data" if verdict.inputs == 1 else f"your data ({verdict.inputs} calls)"
                inputs += f", {data}" + (" + 1 random draw" if verdict.drawn else "")
            else:
                note = verdict.why
        line, path = (call.span.line, call.span.path) if call.span else (None, "")
        resources, uncompiled = call.resources, call.uncompiled
        return ProvenKernel(call.name, line, call.stage, level, inputs, note, path, oracle, resources, uncompiled)


_BY = {
    VerifiedBy.GOLDEN: "a golden file",
    VerifiedBy.INTERPRETER: "the interpreter",
    VerifiedBy.COMPILED: "compiling",
    VerifiedBy.LOWERED: "lowering",
}


def _level(oracle: Oracle | None, call: KernelCall) -> VerifiedBy:
    """What proves a call that nothing stops; ``oracle`` is what its numbers are equal to."""
    if oracle:
        return oracle.proof
    return VerifiedBy.COMPILED if call.resources else VerifiedBy.LOWERED


def _unused(referred: Referred) -> Remaining:
    """A reference that the user named and that said nothing."""
    message = f"{referred.function} was not held against {referred.reference}: {referred.why}"
    return Remaining(None, "compare", "ReferenceUnused", message, "", None, None, "it proves nothing")


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
    return f"{new.type}: {_first_line(new.message)}" if new else "at another error"


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


def _ignored(failure: Failure, rule: Rule, texts: Mapping[str, SourceFile]) -> bool:
    """Whether a comment where it failed says to leave it."""
    source = texts.get(failure.span.path) if failure.span else None
    return source is not None and failure.span is not None and source.ignores(failure.span.line, (rule.code, rule.name))


def _path(failure: Failure) -> str:
    """The file in which a failure is to be mended; empty if that is not known."""
    if failure.facts.returned:
        return failure.facts.returned[0].body.path
    return failure.span.path if failure.span else ""


def _change(problem: _Problem, option: _Option) -> tuple[str, tuple[Edit, ...]]:
    """What an option does, to tell apart those that make the same edits in different files."""
    return _path(problem.failure), option.candidate.edits


def _mark(failure: Failure, rule: Rule | None) -> str:
    """A name for a failure that stays when lines and numbers change; kernels of several files may be called alike."""
    text = re.sub(r"(/[\w.\-]+)+|\d+", "#", failure.message)
    parts = [rule.code if rule else "", failure.type, text, failure.kernel, _path(failure)]
    return digest("\0".join(parts).encode("utf-8", "surrogateescape"))


def _count(observation: Observation, catalogue: Catalogue) -> dict[str, int]:
    counts: dict[str, int] = {}
    for failure in observation.failures:
        mark = _mark(failure, catalogue.match(failure))
        counts[mark] = counts.get(mark, 0) + 1
    return counts


def _tainted(observation: Observation) -> bool:
    return any(n.state != "known" for c in observation.calls for n in c.numbers)


def _loses_comment(source: SourceFile, candidate: Candidate) -> bool:
    try:
        return bool(source.comments - source.edited(candidate.edits).comments)
    except (SourceError, Overlap):
        return False


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:160]
