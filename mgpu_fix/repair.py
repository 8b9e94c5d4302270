"""One invocation from disk to disk: read the files, run the engine on each program, write what was proven, report."""

import functools
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mgpu_fix import __version__, disk, golden
from mgpu_fix.account import Outcome
from mgpu_fix.arrays import DRAW_SEED
from mgpu_fix.catalogue import Catalogue
from mgpu_fix.engine import Engine, Runner
from mgpu_fix.levels import Oracle, VerifiedBy
from mgpu_fix.model import KEPT_CALLS, FileReport, Fix, Observation, Remaining, Report, digest
from mgpu_fix.observe import Observer, Program
from mgpu_fix.observe.run import uses_pallas
from mgpu_fix.outcomes import merged, placed, reports_of, reports_of_one, shows_nothing
from mgpu_fix.problems import Options
from mgpu_fix.reproduce import NoReproducerError, argument, reproducer
from mgpu_fix.source import Document, SourceError, SourceFile, unified_diff
from mgpu_fix.verify import Compare, Golden, Tolerance, compare_files, judge, tolerance, with_numbers


@dataclass(frozen=True)
class Task:
    """What to do with the files: ``mode`` is ``apply`` (write), ``preview`` (write nothing), ``check`` (try nothing),
    ``record`` (try nothing, write goldens) or ``verify`` (try nothing, and a golden must be there).

    ``program`` tells how each file is run, its path is filled in; or, where it has a command, what is run for them all.
    ``given`` are new texts, by real path, to go on from: they are written if a run shows that no kernel is worse off.
    ``goldens`` is the folder of goldens, empty for the one beside each file; ``renew`` says that they are not held
    against what is computed, but written anew. ``reproducer`` is a file for a script that raises an error of the
    program's.
    """

    files: tuple[str, ...]
    mode: str = "apply"
    options: Options = Options()
    program: Program = Program("")
    given: Mapping[str, SourceFile] = field(default_factory=dict)
    goldens: str = ""
    renew: bool = False
    reproducer: str = ""

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
    accept: Callable[[Fix], bool] = lambda fix: True,
) -> Report:
    """Work through the files, one program each, or one for all; every file named may be edited by any of them.

    The numbers come from ``oracle``, if one is given. Only fixes that ``accept`` says yes to are kept.

    Raises ObserverError where programs cannot be run at all, and KeyboardInterrupt with no file touched by the program
    under way.
    """
    documents: dict[str, Document] = {}
    reports: dict[str, FileReport] = {}
    # A file counts once, under the first of its names.
    task = replace(task, files=tuple({os.path.realpath(name): name for name in reversed(task.files)}.values())[::-1])
    for name in task.files:
        try:
            document = disk.opened(name)
            if not document.runs:
                raise disk.Blocked("nothing runs its Python; mgpu-fix upgrade brings it to a newer JAX")
            documents[os.path.realpath(name)] = document
        except disk.Blocked as e:
            reports[name] = FileReport(name, "blocked", reason=str(e))
    originals = {path: document.program for path, document in documents.items()}
    # Python reads no notebook.
    shown = {path: d.program.data for path, d in documents.items() if d.program is not d.file}
    sources = originals | {path: source for path, source in task.given.items() if path in originals}
    lost = reproduced = ""
    drafts: dict[str, tuple[Observation, golden.Draft]] = {}
    touched: dict[str, FileReport] = {}
    last = Observation("ok")
    readable = [name for name in task.files if name not in reports]
    for name in readable[:1] if task.program.command else readable:
        path = os.path.realpath(name)
        if not task.program.command and uses_pallas(Path(path), text=originals[path].data) is False:
            reports[name] = FileReport(name, "clean", reason="it does not use Pallas")
            continue

        # What earlier programs proved is not on the disk yet.
        proven = shown | {path: source.data for path, source in sources.items() if source.data != originals[path].data}
        run = functools.partial(observe, observer, oracle, replace(task.program, path=name), proven)
        files = readable if task.program.command else [name]
        try:
            engine = engine_of(task, files, run, observer.folder, sources, catalogue, progress, accept)
        except golden.GoldenError as e:
            reports[name] = FileReport(name, "blocked", reason=str(e))
            continue
        held, compare = engine.golden, engine.compare
        outcome = engine.repair() if task.mode in ("apply", "preview") else engine.diagnose()
        if task.mode == "verify" and held:
            outcome = replace(outcome, remaining=(*outcome.remaining, *golden.gaps(outcome.last, held)))
        if task.reproducer and outcome.last.failures and not reproduced:
            reproduced = _reproduce(task, name, run, outcome, sources, observer.python)
        if task.mode == "record" or task.renew:
            drafts[name] = _draft(run, outcome, engine.originals, compare)
        if task.given:
            before = observer.observe(replace(task.program, path=name), shown, None)
            outcome, worse = _held_against(before, outcome)
            lost = lost or worse
        last = outcome.last
        sources = dict(outcome.texts)
        if task.program.command:
            reports |= reports_of_one(readable, outcome)
            break
        for path, report in reports_of(name, outcome, task.files).items():
            if (path == name and not (path in touched and shows_nothing(outcome))) or report.fixes or report.remaining:
                touched[path] = merged(touched.get(path), report)
        reports[name] = touched.pop(name)
    for name, report in touched.items():
        reports[name] = merged(reports.get(name), report)
    unseen = next((r for r in reports.values() if r.status == "blocked"), None) if task.given else None
    lost = lost or (f"nothing was changed, since no run shows what it does: {unseen.reason}" if unseen else "")
    if lost:
        sources = originals
        reports = {
            name: report if report.status == "blocked" else FileReport(report.path, "unfixed", reason=lost)
            for name, report in reports.items()
        }
    changes: dict[str, tuple[SourceFile, SourceFile]] = {}
    for name in task.files:
        path = os.path.realpath(name)
        if path in documents:
            old = documents[path].file
            try:
                new = documents[path].written(sources[path])
            except SourceError as e:
                reports[name] = FileReport(reports[name].path, "blocked", reason=str(e))
                continue
            diff = unified_diff(disk.shown_path(name), old.data, new.data)
            report = reports[name]
            report = replace(report, notes=(*report.notes, *_misspelt(originals[path], report.path, catalogue)))
            reports[name] = replace(placed(report, documents[path]), diff=diff)
            changes[name] = old, new
    if task.mode == "apply":
        for name, reason in disk.write_all({n: pair for n, pair in changes.items() if reports[n].diff}).items():
            reports[name] = replace(reports[name], status="blocked", reason=reason)
    for name, (run_again, drafted) in drafts.items() if task.mode != "preview" else ():
        reports[name] = _record(task, reports[name], golden.place(name, task.goldens), drafted, run_again)
    if task.reproducer:
        first = reports[task.files[0]]
        told = reproduced or f"nothing was written to {task.reproducer}, since nothing fails"
        reports[task.files[0]] = replace(first, reason="; ".join(filter(None, (first.reason, told))))
    return Report(
        files=tuple(reports[name] for name in dict.fromkeys(task.files)),
        python=platform.python_version(),
        jax=last.jax,
        device=last.device,
        runs=observer.runs,
        tool={"name": "mgpu-fix", "version": __version__},
    )


def _misspelt(source: SourceFile, shown: str, catalogue: Catalogue) -> Iterator[Remaining]:
    """Comments that ignore nothing, since they name no rule."""
    for place, name in catalogue.unknown(source):
        message, reason = f"no rule is called {name}", "its comment ignores nothing; mgpu-fix rules lists them"
        yield Remaining(None, "parse", "UnknownRule", message, shown, place.line, place.column, reason)


def engine_of(
    task: Task,
    files: Sequence[str],
    run: Runner,
    folder: str,
    sources: Mapping[str, SourceFile],
    catalogue: Catalogue,
    progress: Callable[[str], None],
    accept: Callable[[Fix], bool] = lambda fix: True,
) -> Engine:
    """The search for the program that ``run`` runs for ``files``; goldens are unpacked into ``folder``.

    Raises GoldenError.
    """
    compare = functools.partial(compare_files, tolerance=task.tolerance)
    return Engine(run, catalogue, sources, task.options, compare, progress, _golden(task, files, folder), accept)


def _golden(task: Task, files: Sequence[str], folder: str) -> Golden | None:
    """The golden of the program that is run for ``files``; None where it has none. Raises GoldenError."""
    if task.mode == "record" or task.renew:
        return None
    path = next((p for name in files if (p := golden.place(name, task.goldens)).exists()), None)
    if path is None:
        if task.mode == "verify":
            shown = disk.shown_path(str(golden.place(files[0], task.goldens)))
            raise golden.GoldenError(f"there is no {shown}; mgpu-fix golden record makes it")
        return None
    unpacked = Path(folder, f"golden-{digest(os.fsencode(path))}")
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
    none = "no kernel has numbers to record" + "".join(f"; {label}: {why}" for label, why in drafted.left[:1])
    why = drafted.refused or ("" if drafted.calls else none)
    if not why:
        how = {"tool": f"mgpu-fix {__version__}", "jax": run.jax, "device": run.device, "draw_seed": DRAW_SEED}
        why = disk.write_new(path, golden.dump(drafted, run, how, task.tolerance))
    if why:
        status = "partial" if report.fixes else "unfixed"
        return replace(report, status=status, reason="; ".join(filter(None, (report.reason, f"not recorded: {why}"))))
    several = len(drafted.calls) > 1
    told = f"{len(drafted.calls)} kernel call{'s' if several else ''} recorded in {disk.shown_path(str(path))}"
    often = any(len(call.numbers) >= KEPT_CALLS for call, _ in drafted.calls)
    told += f", of each the first {KEPT_CALLS} inputs" if often else ""
    told += "".join(f"; not recorded: {label}: {reason}" for label, reason in drafted.left)
    return replace(report, reason="; ".join(filter(None, (report.reason, told))))


def _reproduce(
    task: Task, name: str, run: Runner, outcome: Outcome, sources: Mapping[str, SourceFile], python: str
) -> str:
    """Write a script that raises the program's first error, if possible one that no rule knows; what became of it."""
    unknown = {(r.type, r.message) for r in outcome.remaining if r.code is None}
    failures = sorted(outcome.last.failures, key=lambda f: (f.type, f.message) not in unknown)
    path = os.path.realpath(name)
    source, program = sources[path], task.program
    defined = {getattr(node, "name", "") for node in source.tree.body}
    asked = program.call or "kernel"
    at = outcome.last.failures.index(failures[0])
    shapes = [", ".join(map(argument, c.avals)) for c in outcome.last.calls if at in c.failures]
    examples = [(kernel, args) for kernel in outcome.last.callables for args in shapes]
    if program.args:
        examples.append((asked, ", ".join(map(argument, program.args))))
    elif {asked, "example_args"} <= defined:
        examples.append((asked, "*example_args()"))
    try:
        script = reproducer(source, failures[0], lambda data: run({path: data}, ()), examples)
    except NoReproducerError as e:
        return f"no reproducer was written: {e}"
    with tempfile.TemporaryDirectory() as folder:
        # Away from the user's modules, and without us.
        (file := Path(folder, "reproducer.py")).write_text(script, encoding="utf-8")
        env = {**os.environ, "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            [python, "-P", str(file)], capture_output=True, text=True, cwd=folder, env=env, check=False
        )
    last = (ran.stderr.strip().splitlines() or ["it ends without one"])[-1]
    if failures[0].type not in ran.stderr or ran.returncode != 1:
        return f"no reproducer was written, since by itself it ends otherwise: {last[:160]}"
    why = disk.write_new(Path(task.reproducer), script.encode())
    return f"{why}" if why else f"{task.reproducer} raises it in a fresh process"


def observe(
    observer: Observer,
    oracle: Observer | None,
    program: Program,
    proven: Mapping[str, bytes],
    texts: Mapping[str, bytes],
    draws: tuple[tuple[str, ...], ...] | None,
) -> Observation:
    """One run with ``texts``, and for other files ``proven``, in place of what the disk holds; the numbers come from
    ``oracle``, if one is given."""
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
