"""One invocation from disk to disk: read the files, run the engine on each program, write what was proven, report."""

import functools
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mgpu_fix import __version__, disk, golden
from mgpu_fix.arrays import DRAW_SEED
from mgpu_fix.catalogue import Catalogue
from mgpu_fix.engine import Engine, Options, Outcome, Runner
from mgpu_fix.levels import Oracle, VerifiedBy
from mgpu_fix.model import FileReport, Fix, Observation, Remaining, Report, digest
from mgpu_fix.observe import Observer, Program
from mgpu_fix.observe.run import uses_pallas
from mgpu_fix.source import SourceFile, unified_diff
from mgpu_fix.verify import Compare, Golden, Tolerance, compare_files, judge, tolerance, with_numbers


@dataclass(frozen=True)
class Task:
    """What to do with the files: ``mode`` is ``apply`` (write), ``preview`` (write nothing), ``check`` (try nothing),
    ``record`` (try nothing, write goldens) or ``verify`` (try nothing, and a golden must be there).

    ``program`` tells how each file is run, its path is filled in; or, where it has a command, what is run for them all.
    ``given`` are new texts, by real path, to go on from: they are written if a run shows that no kernel is worse off.
    ``goldens`` is the folder of goldens, empty for the one beside each file; ``renew`` says that they are not held
    against what is computed, but written anew.
    """

    files: tuple[str, ...]
    mode: str = "apply"
    options: Options = Options()
    program: Program = Program("")
    given: Mapping[str, SourceFile] = field(default_factory=dict)
    goldens: str = ""
    renew: bool = False

    @property
    def tolerance(self) -> Tolerance:
        """How far numbers may differ, by dtype."""
        return tolerance(self.program.rtol, self.program.atol)


def carry_out(
    task: Task,
    observer: Observer,
    catalogue: Catalogue,
    progress: Callable[[str], None],
    oracle: Observer | None = None,
) -> Report:
    """Work through the files, one program each, or one for all; every file named may be edited by any of them.

    The numbers come from ``oracle``, if one is given.

    Raises ObserverError where programs cannot be run at all, and KeyboardInterrupt with no file touched by the program
    under way.
    """
    sources: dict[str, SourceFile] = {}
    reports: dict[str, FileReport] = {}
    # A file counts once, under the first of its names.
    task = replace(task, files=tuple({os.path.realpath(name): name for name in reversed(task.files)}.values())[::-1])
    for name in task.files:
        try:
            sources[os.path.realpath(name)] = disk.read(name)
        except disk.Blocked as e:
            reports[name] = FileReport(name, "blocked", reason=str(e))
    originals = dict(sources)
    sources |= {path: source for path, source in task.given.items() if path in sources}
    lost = ""
    drafts: dict[str, tuple[Observation, golden.Draft]] = {}
    touched: dict[str, FileReport] = {}
    last = Observation("ok")
    readable = [name for name in task.files if name not in reports]
    for name in readable[:1] if task.program.command else readable:
        if not task.program.command and uses_pallas(Path(os.path.realpath(name))) is False:
            reports[name] = FileReport(name, "clean", reason="it does not use Pallas")
            continue

        # What earlier programs proved is not on the disk yet.
        proven = {path: source.data for path, source in sources.items() if source.data != originals[path].data}
        run = functools.partial(_run, observer, oracle, replace(task.program, path=name), proven)
        files = readable if task.program.command else [name]
        try:
            held = _golden(task, files, observer)
        except golden.GoldenError as e:
            reports[name] = FileReport(name, "blocked", reason=str(e))
            continue
        compare = functools.partial(compare_files, tolerance=task.tolerance)
        engine = Engine(run, catalogue, sources, task.options, compare, progress, held)
        outcome = engine.repair() if task.mode in ("apply", "preview") else engine.diagnose()
        if task.mode == "verify" and held:
            outcome = replace(outcome, remaining=(*outcome.remaining, *golden.gaps(outcome.last, held)))
        if task.mode == "record" or task.renew:
            drafts[name] = _draft(run, outcome, engine.originals, compare)
        if task.given:
            before = observer.observe(replace(task.program, path=name), {}, None)
            outcome, worse = _held_against(before, outcome)
            lost = lost or worse
        last = outcome.last
        sources = dict(outcome.texts)
        if task.program.command:
            reports |= _reports_of_one(readable, outcome)
            break
        for path, report in _reports(name, outcome, task.files).items():
            if (path == name and not (path in touched and _shows_nothing(outcome))) or report.fixes or report.remaining:
                touched[path] = _merged(touched.get(path), report)
        reports[name] = touched.pop(name)
    for name, report in touched.items():
        reports[name] = _merged(reports.get(name), report)
    unseen = next((r for r in reports.values() if r.status == "blocked"), None) if task.given else None
    lost = lost or (f"nothing was changed, since no run shows what it does: {unseen.reason}" if unseen else "")
    if lost:
        sources = originals
        reports = {
            name: report if report.status == "blocked" else FileReport(report.path, "unfixed", reason=lost)
            for name, report in reports.items()
        }
    changes = {n: (originals[p], sources[p]) for n in task.files if (p := os.path.realpath(n)) in sources}
    for name, (old, new) in changes.items():
        reports[name] = replace(reports[name], diff=unified_diff(disk.shown_path(name), old.data, new.data))
    if task.mode == "apply":
        for name, reason in disk.write_all({n: pair for n, pair in changes.items() if reports[n].diff}).items():
            reports[name] = replace(reports[name], status="blocked", reason=reason)
    for name, (run_again, drafted) in drafts.items() if task.mode != "preview" else ():
        reports[name] = _record(task, reports[name], golden.place(name, task.goldens), drafted, run_again)
    return Report(
        files=tuple(reports[name] for name in dict.fromkeys(task.files)),
        python=platform.python_version(),
        jax=last.jax,
        device=last.device,
        runs=observer.runs,
        tool={"name": "mgpu-fix", "version": __version__},
    )


def _golden(task: Task, files: Sequence[str], observer: Observer) -> Golden | None:
    """The golden of the program that is run for ``files``; None where it has none. Raises GoldenError."""
    if task.mode == "record" or task.renew:
        return None
    path = next((p for name in files if (p := golden.place(name, task.goldens)).exists()), None)
    if path is None:
        if task.mode == "verify":
            shown = disk.shown_path(str(golden.place(files[0], task.goldens)))
            raise golden.GoldenError(f"there is no {shown}; mgpu-fix golden record makes it")
        return None
    unpacked = Path(observer.folder, f"golden-{digest(os.fsencode(path))}")
    return golden.load(path, unpacked, task.program.rtol, task.program.atol)


def _draft(
    run: Runner, outcome: Outcome, originals: Mapping[str, SourceFile], compare: Compare
) -> tuple[Observation, golden.Draft]:
    """What of a program can be recorded, once it was run again, with all calls on one more draw; and that run."""
    texts = {path: source.data for path, source in outcome.texts.items() if source.data != originals[path].data}
    if outcome.last.failures or outcome.last.status != "ok":
        return outcome.last, golden.draft(outcome.last, outcome.last, compare)
    again = run(texts, tuple(dict.fromkeys(call.key for call in outcome.last.calls)))
    return again, golden.draft(outcome.last, again, compare)


def _record(task: Task, report: FileReport, path: Path, drafted: golden.Draft, run: Observation) -> FileReport:
    """Write a golden; what became of it stands in the report."""
    if report.status == "blocked":
        return report
    why = drafted.refused or ("" if drafted.calls else "no kernel has numbers to record")
    if not why:
        how = {"tool": f"mgpu-fix {__version__}", "jax": run.jax, "device": run.device, "draw_seed": DRAW_SEED}
        why = disk.write_golden(path, golden.dump(drafted, run, how, task.tolerance))
    if why:
        status = "partial" if report.fixes else "unfixed"
        return replace(report, status=status, reason="; ".join(filter(None, (report.reason, f"not recorded: {why}"))))
    several = len(drafted.calls) > 1
    told = f"{len(drafted.calls)} kernel call{'s' if several else ''} recorded in {disk.shown_path(str(path))}"
    told += "".join(f"; not recorded: {label}: {reason}" for label, reason in drafted.left)
    return replace(report, reason="; ".join(filter(None, (report.reason, told))))


def _run(
    observer: Observer,
    oracle: Observer | None,
    program: Program,
    proven: Mapping[str, bytes],
    texts: Mapping[str, bytes],
    draws: tuple[tuple[str, ...], ...] | None,
) -> Observation:
    seen = observer.observe(program, {**proven, **texts}, draws)
    return with_numbers(seen, oracle.observe(program, {**proven, **texts}, draws)) if oracle else seen


def _held_against(before: Observation, outcome: Outcome) -> tuple[Outcome, str]:
    """An outcome of new texts, its kernels proven by the run ``before`` of the old ones where their numbers agree;
    and what is worse with the new texts, empty if nothing is."""
    after = outcome.last
    verdicts = judge(before, after, compare_files)
    found = next((v.lost for v in verdicts if v.lost), "")
    if not found and before.status == "ok" and after.status not in ("ok", "stopped"):
        found = after.reason
    agree = {id(v.after) for v in verdicts if v.agrees}
    kernels = tuple(
        replace(kernel, verified_by=VerifiedBy.INTERPRETER, oracle=Oracle.ORIGINAL)
        if id(call) in agree and kernel.verified_by
        else kernel
        for kernel, call in zip(outcome.kernels, after.calls, strict=True)
    )
    lost = f"nothing was changed, since with the change {found}" if found else ""
    return replace(outcome, kernels=kernels), lost


def exit_code(report: Report, mode: str) -> int:
    """The contract's exit code: 2 blocked, 1 something remains (or a preview found a change), 0 otherwise."""
    statuses = {f.status for f in report.files}
    if "blocked" in statuses:
        return 2
    if statuses & {"partial", "unfixed"} or any(f.stopped for f in report.files):
        return 1
    return 1 if mode != "apply" and any(f.diff for f in report.files) else 0


def _reports(name: str, outcome: Outcome, files: Sequence[str]) -> dict[str, FileReport]:
    """What one program's run says of each file named. What lies in no named file is told of the program's own."""
    named = {os.path.realpath(f): f for f in files}
    fixes: dict[str, list[Fix]] = {}
    remaining: dict[str, list[Remaining]] = {}
    for fix in outcome.fixes:
        fixes.setdefault(named.get(fix.path, name), []).append(replace(fix, path=disk.shown_path(named[fix.path])))
    for item in outcome.remaining:
        expected = item.reason.startswith("caught by the program")
        if not expected:
            remaining.setdefault(named.get(item.path, name), []).append(
                replace(item, path=disk.shown_path(item.path) if item.path else "")
            )
    notes: dict[str, list[Remaining]] = {}
    for item in outcome.notes:
        notes.setdefault(named.get(item.path, name), []).append(
            replace(item, path=disk.shown_path(item.path) if item.path else "")
        )
    reports = {}
    for file in named.values():
        status = _status(bool(fixes.get(file)), bool(remaining.get(file)))
        reports[file] = FileReport(
            path=disk.shown_path(file),
            status=status,
            fixes=tuple(fixes.get(file, ())),
            remaining=tuple(remaining.get(file, ())),
            notes=tuple(notes.get(file, ())),
        )
    caught = sum(r.reason.startswith("caught by the program") for r in outcome.remaining)
    kernels = tuple(replace(k, path=disk.shown_path(k.path) if k.path else "") for k in outcome.kernels)
    own = replace(reports[name], kernels=kernels, output=outcome.last.output, exit_code=outcome.last.exit_code)
    reports[name] = _judged(own, outcome, caught)
    return reports


def _status(fixed: bool, remains: bool) -> str:
    if fixed:
        return "partial" if remains else "fixed"
    return "unfixed" if remains else "clean"


def _shows_nothing(outcome: Outcome) -> bool:
    """Whether a program ran to its end and nothing of Pallas was seen in it."""
    last = outcome.last
    seen = last.calls or last.others or outcome.fixes or outcome.remaining
    return last.status == "ok" and not seen


def _judged(report: FileReport, outcome: Outcome, caught: int) -> FileReport:
    """The program's own file: blocked where the run shows nothing, with what to do about it."""
    judged = _judged_alone(report, outcome, caught)
    if not outcome.last.children:
        return judged
    # Seen or not, nothing is known of what the others did.
    status = "blocked" if _shows_nothing(outcome) else judged.status
    reason = f"{judged.reason}; {_CHILDREN}" if judged.reason else _CHILDREN
    return replace(judged, status=status, reason=reason)


_CHILDREN = "it starts processes of its own, in which no kernel is seen"


def _judged_alone(report: FileReport, outcome: Outcome, caught: int) -> FileReport:
    last = outcome.last
    if last.status in ("timeout", "crashed", "blocked"):
        return replace(report, status="blocked", reason=last.reason)
    if last.status == "stopped" and last.reason:
        return _stopped(report, outcome)
    if caught:
        plural = "error is" if caught == 1 else "errors are"
        return replace(report, reason=f"{caught} {plural} caught by the program; --include-caught fixes them")
    if _shows_nothing(outcome):
        if not last.declared:
            return replace(report, reason="it calls no Pallas kernel")
        return replace(report, status="blocked", reason=_how_to_call(last))
    return replace(report, reason=_idle(last, report.path))


def _stopped(report: FileReport, outcome: Outcome) -> FileReport:
    """A program that stops by itself, or whose tests fail."""
    last = outcome.last
    found = bool(report.fixes or report.remaining or outcome.fixes or outcome.remaining)
    if last.checks:
        own = [check for check in last.checks if check.reason]
        unproven = all(check.unproven for check in own)
        # The other tests were run to their end all the same.
        reason, span, seen = last.reason, own[0].span if own else None, found or bool(last.calls)
    else:
        unproven = any(n.state != "known" for c in last.calls for n in c.numbers)
        reason, span, seen = f"the program stops: {last.reason}", last.span, found or unproven
    if span:
        mine = span.path == os.path.realpath(report.path)
        reason += f" (line {span.line})" if mine else f" ({disk.shown_path(span.path)}:{span.line})"
    if unproven:
        reason += ", after a kernel whose numbers could not be had"
    return replace(report, reason=reason, status=report.status if seen else "blocked", stopped=not unproven)


def _idle(last: Observation, path: str) -> str:
    """What to say of the kernels that are declared in a file and not called."""
    called = {(c.span.path, c.span.line) for c in last.calls if c.span}
    idle = [k for k in last.declared if (k.path, k.line) not in called and k.path == os.path.realpath(path)]
    return f"not called, so not checked: {', '.join(f'{k.name} (line {k.line})' for k in idle)}" if idle else ""


def _reports_of_one(files: Sequence[str], outcome: Outcome) -> dict[str, FileReport]:
    """What the one run for all files says of each. What lies in none of them is told of the first."""
    last = outcome.last
    reports = _reports(files[0], outcome, files)
    first = reports[files[0]]
    paths = {name: os.path.realpath(name) for name in files}
    known = {*last.loaded, *(k.path for k in last.declared)}
    unseen = [n for n in files if paths[n] not in known and not reports[n].fixes and not reports[n].remaining]
    if first.status == "blocked" and _shows_nothing(outcome) and last.declared:
        first = replace(first, reason=f"no kernel is called; seen: {_seen(last)}. Run something that calls one")
    for name in files:
        report = first if name == files[0] else reports[name]
        mine = (k for k in outcome.kernels if paths[name] == (k.path if k.path in paths.values() else paths[files[0]]))
        kernels = tuple(replace(k, path=disk.shown_path(k.path) if k.path else "") for k in mine)
        status, reason = report.status, report.reason
        if first.status == "blocked":
            status, reason = "blocked", first.reason
        elif name in unseen:
            # One file is a mistake, one of many only lies elsewhere.
            status = "blocked" if unseen == list(files) else status
            reason = "; ".join(filter(None, ("the program does not load it, so nothing in it was checked", reason)))
        elif report is not first:
            reason = _idle(last, name)
        reports[name] = replace(report, kernels=kernels, status=status, reason=reason)
    return reports


def _how_to_call(observation: Observation) -> str:
    seen = _seen(observation)
    if not observation.callables:
        return f"no kernel is called; seen: {seen}. Call one in the file, or in a function that --call NAME names"
    call = f"--call {observation.callables[0]} --arg 'f32[128,128]'"
    return f"no kernel is called; seen: {seen}. Call one with its own shapes, one --arg for each operand, like {call}"


def _seen(observation: Observation) -> str:
    return ", ".join(f"{k.name} (line {k.line})" for k in observation.declared[:5])


def _merged(a: FileReport | None, b: FileReport) -> FileReport:
    """Two programs' words on one file."""
    if a is None or a.status == "blocked":
        return b
    fixes, remaining = (*a.fixes, *b.fixes), (*a.remaining, *b.remaining)
    return replace(
        b,
        fixes=fixes,
        remaining=remaining,
        kernels=(*a.kernels, *b.kernels),
        status=_status(bool(fixes), bool(remaining)),
    )
