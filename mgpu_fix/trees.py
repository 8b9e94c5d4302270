"""``upgrade`` from disk to disk: what becomes of each file of whole trees, and writing them."""

import ast
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mgpu_fix import __version__, disk
from mgpu_fix.catalogue import Rule, load
from mgpu_fix.levels import Applicability
from mgpu_fix.model import FileReport, Fix, Report
from mgpu_fix.outcomes import placed
from mgpu_fix.source import Document, Names, SourceError, SourceFile, unified_diff
from mgpu_fix.upgrade import upgrade
from mgpu_fix.versions import Window
from mgpu_fix.walk import python_files

#: Files are shared out among processes from here on; fewer are done before these have started.
_MANY = 16


@dataclass(frozen=True)
class Task:
    """Files to bring across ``window``, found in ``roots``.

    ``select`` and ``ignore`` name rules, with commas between. ``write`` off changes nothing on disk.
    """

    paths: tuple[str, ...]
    roots: tuple[str, ...]
    window: Window
    select: str = ""
    ignore: str = ""
    least: Applicability = Applicability.SAFE
    write: bool = True
    jobs: int = 1


@dataclass(frozen=True)
class Result:
    """A file that speaks of Pallas: what was found, and its text before and after."""

    report: FileReport
    symbols: Counter[str]
    before: bytes = b""
    after: bytes = b""


def carry_out(
    task: Task, tell: Callable[[FileReport], None], accept: Callable[[Fix], bool] | None = None
) -> list[Result]:
    """Upgrade every file; ``tell`` hears of each where nothing is written, else of all once they are. Where there is
    an ``accept``, only what it says yes to is done."""
    results: list[Result] = []
    for result in _results(task, accept):
        results.append(result)
        if not task.write:
            tell(result.report)
    if task.write:
        changes = {
            r.report.path: (SourceFile(real, r.before), SourceFile(real, r.after))
            for r in results
            if r.before != r.after and (real := os.path.realpath(r.report.path))
        }
        reasons = disk.write_all(changes)
        results = [_blocked(r, reasons[r.report.path]) if r.report.path in reasons else r for r in results]
        for result in results:
            tell(result.report)
    return results


def report(results: Iterable[Result]) -> Report:
    """What can be said of all files without running anything."""
    files = tuple(result.report for result in results)
    return Report(files, python=platform.python_version(), tool={"name": "mgpu-fix", "version": __version__})


def _blocked(result: Result, reason: str) -> Result:
    return replace(result, report=replace(result.report, status="blocked", reason=reason), symbols=Counter())


def _results(task: Task, accept: Callable[[Fix], bool] | None) -> Iterator[Result]:
    """One for each file, in order."""
    if accept or task.jobs == 1 or len(task.paths) < _MANY:
        # A file that others import from is looked at twice, and asked about once.
        yield from (_upgraded(task, path, functools.cache(accept or _any)) for path in task.paths)
        return
    work = functools.partial(_upgraded, task)
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)
    with concurrent.futures.ProcessPoolExecutor(task.jobs, context) as pool:
        yield from pool.map(work, task.paths, chunksize=4)


def _any(fix: Fix) -> bool:
    return True


def _upgraded(task: Task, path: str, accept: Callable[[Fix], bool] = _any) -> Result:
    shown = disk.shown_path(path)
    try:
        return _done(task, shown, disk.opened(path), load().chosen(task.select, task.ignore), accept)
    except (disk.Blocked, SourceError) as e:
        reason = str(e)
    except RecursionError:
        reason = "its code is nested too deeply to be looked at"
    return Result(FileReport(shown, "blocked", reason=reason), Counter())


def _done(task: Task, shown: str, document: Document, rules: Sequence[Rule], accept: Callable[[Fix], bool]) -> Result:
    source = document.program
    done = upgrade(source, rules, task.window, task.least, accept=accept)
    gone = imported(Names(source)) - imported(Names(done.source)) if done.fixes else set()
    wanted = _wanted(task.roots, source.path, gone) if gone else set()
    if wanted:
        done = upgrade(source, rules, task.window, task.least, wanted, accept)
    after = document.written(done.source)
    fixed, left = bool(done.fixes), bool(done.remaining)
    status = ("partial" if left else "fixed") if fixed else "unfixed" if left else "clean"
    told = FileReport(
        path=shown,
        status=status,
        fixes=tuple(replace(fix, path=shown) for fix in done.fixes),
        remaining=tuple(replace(item, path=shown) for item in done.remaining),
        notes=tuple(replace(item, path=shown) for item in done.notes),
        diff=unified_diff(shown, document.file.data, after.data),
    )
    return Result(placed(told, document), done.symbols, document.file.data, after.data)


def imported(names: Names) -> set[str]:
    """What a module binds by importing it, which others may import from there."""
    bound = names.members(names.source.tree).items()
    return {name for name, bindings in bound if any(isinstance(b, ast.alias) for b in bindings)}


def _wanted(roots: Sequence[str], path: str, gone: Iterable[str]) -> set[str]:
    """Those names that another file of the trees seems to take from the module at ``path``."""
    module = os.path.basename(os.path.dirname(path) if path.endswith("__init__.py") else path.removesuffix(".py"))
    wanted: set[str] = set()
    for other in python_files(roots):
        if os.path.realpath(other) == path:
            continue
        with contextlib.suppress(OSError), open(other, encoding="utf-8", errors="replace") as f:
            text = f.read()
            if re.search(rf"\b{re.escape(module)}\b", text):
                wanted |= {name for name in gone if re.search(rf"\b{name}\b", text)}
    return wanted
