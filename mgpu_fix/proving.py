"""``upgrade --run``: the program is run with what was changed, repaired further, and only then written."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from mgpu_fix import disk
from mgpu_fix.catalogue import load
from mgpu_fix.levels import VerifiedBy, weakest
from mgpu_fix.model import FileReport, Fix, Report
from mgpu_fix.observe import Observer, Program
from mgpu_fix.problems import Options
from mgpu_fix.repair import Task, carry_out
from mgpu_fix.trees import Result


def prove(
    results: Sequence[Result],
    program: Program,
    select: str,
    ignore: str,
    unsafe: bool,
    write: bool,
    progress: Callable[[str], None],
    accept: Callable[[Fix], bool],
) -> Report:
    """Run ``program`` over the upgraded texts, repair what then fails, and write it all if ``write``.

    Nothing is written where a kernel is worse off than with the old texts, and no repair is made that ``accept`` says
    no to. Raises ObserverError.
    """
    seen = {os.path.realpath(r.report.path): r for r in results if r.before}
    given = {path: disk.parsed(path, r.after).program for path, r in seen.items() if r.after != r.before}
    files = tuple(r.report.path for r in seen.values())
    mode = "apply" if write else "preview"
    catalogue = load()
    chosen = tuple(rule.code for rule in catalogue.chosen(select, ignore))
    task = Task(files, mode, Options(select=chosen, unsafe=unsafe), program, given)
    with Observer() as observer:
        report = carry_out(task, observer, catalogue, progress, accept=accept)
    ran = {os.path.realpath(file.path): file for file in report.files}
    merged = tuple(_merged(r.report, ran.get(os.path.realpath(r.report.path))) for r in results)
    return replace(report, files=merged)


def _merged(static: FileReport, ran: FileReport | None) -> FileReport:
    """What was changed in a file, and what its run says of that."""
    if ran is None:
        return static
    if not ran.diff:
        return replace(ran, notes=static.notes)
    level = _level(ran)
    fixes = (*(replace(fix, verified_by=level) for fix in static.fixes), *ran.fixes)
    remaining = (*static.remaining, *ran.remaining)
    status = ("partial" if remaining else "fixed") if ran.status != "blocked" else ran.status
    return replace(ran, status=status, fixes=fixes, remaining=remaining, notes=static.notes)


def _level(ran: FileReport) -> VerifiedBy | None:
    """How well a file's kernels are proven, all of them; None where one is not, or none was called."""
    levels = [kernel.verified_by for kernel in ran.kernels]
    if not levels or ran.remaining or any(level is None for level in levels):
        return None
    return weakest(level for level in levels if level)
