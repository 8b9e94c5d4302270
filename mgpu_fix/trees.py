"""``upgrade`` from disk to disk: the Python files of whole trees, what becomes of each, and writing them."""

import concurrent.futures
import functools
import multiprocessing
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mgpu_fix import __version__, disk
from mgpu_fix.levels import Applicability
from mgpu_fix.model import FileReport, Report
from mgpu_fix.versions import Window

#: Folders that hold no code of the project's own, as other tools leave them out too.
SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", ".eggs", "node_modules", "site-packages", "dist-packages"}
    | {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", "__pypackages__"}
)
#: Files are shared out among processes from here on; fewer are done before these have started.
_MANY = 16


@dataclass(frozen=True)
class Task:
    """What to bring across ``window``. ``select`` and ``ignore`` name rules, with commas between. ``write`` off changes
    nothing on disk."""

    paths: tuple[str, ...]
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


def carry_out(task: Task, tell: Callable[[FileReport], None]) -> list[Result]:
    """Upgrade every file; ``tell`` hears of each where nothing is written, else of all once they are."""
    results: list[Result] = []
    for result in _results(task):
        results.append(result)
        if not task.write:
            tell(result.report)
    if task.write:
        changes = {
            r.report.path: (disk.parsed(r.report.path, r.before), disk.parsed(r.report.path, r.after))
            for r in results
            if r.before != r.after
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


def _results(task: Task) -> Iterator[Result]:
    """One for each file that speaks of Pallas or cannot be read, in order."""
    work = functools.partial(_upgraded, task)
    named: list[str] = []
    for path in python_files(task.paths):
        try:
            if _mentions_pallas(disk.read_bytes(path)):
                named.append(path)
        except disk.Blocked as e:
            yield Result(FileReport(path, "blocked", reason=str(e)), Counter())
    if task.jobs == 1 or len(named) < _MANY:
        yield from map(work, named)
        return
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)
    with concurrent.futures.ProcessPoolExecutor(task.jobs, context) as pool:
        yield from pool.map(work, named, chunksize=4)


def _mentions_pallas(data: bytes) -> bool:
    return b"pallas" in data or b"mosaic" in data


def _upgraded(task: Task, path: str) -> Result:
    # Only now: a tree without Pallas pays for none of it.
    from mgpu_fix.catalogue import load
    from mgpu_fix.source import unified_diff
    from mgpu_fix.upgrade import upgrade

    shown = disk.shown_path(path)
    try:
        source = disk.read(path)
    except disk.Blocked as e:
        return Result(FileReport(shown, "blocked", reason=str(e)), Counter())
    rules = load().chosen(task.select, task.ignore)
    done = upgrade(source, rules, task.window, task.least)
    fixed, left = bool(done.fixes), bool(done.remaining)
    status = ("partial" if left else "fixed") if fixed else "unfixed" if left else "clean"
    told = FileReport(
        path=shown,
        status=status,
        fixes=tuple(replace(fix, path=shown) for fix in done.fixes),
        remaining=tuple(replace(item, path=shown) for item in done.remaining),
        notes=tuple(replace(item, path=shown) for item in done.notes),
        diff=unified_diff(shown, source.data, done.source.data),
    )
    return Result(told, done.symbols, source.data, done.source.data)


def python_files(paths: Iterable[str]) -> Iterator[str]:
    """Python files in the order of their names: those named, whatever they are called, and those in folders named.

    In folders ``.gitignore`` is respected, as far as it lies in them, symbolic links are not followed, and what holds
    no code of the project's own is left out. A path that does not exist is given back as it is.
    """
    seen: set[str] = set()
    for path in paths:
        for found in _files_in(path, ()) if os.path.isdir(path) else (path,):
            real = os.path.realpath(found)
            if real not in seen:
                seen.add(real)
                yield found


#: A folder, and what its ``.gitignore`` says of a path below it: True to ignore it, False not to, None nothing.
_Ignores = tuple[str, Callable[[str], bool | None]]


def _files_in(folder: str, outer: Sequence[_Ignores]) -> Iterator[str]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return
    ignores = [*outer, *_ignores(folder, entries)]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED and not _is_ignored(f"{entry.path}/", ignores):
                yield from _files_in(entry.path, ignores)
        elif (
            entry.name.endswith(".py")
            and entry.is_file(follow_symlinks=False)
            and not (ignores and _is_ignored(entry.path, ignores))
        ):
            yield entry.path


def _ignores(folder: str, entries: Iterable[os.DirEntry[str]]) -> list[_Ignores]:
    if not any(entry.name == ".gitignore" and entry.is_file(follow_symlinks=False) for entry in entries):
        return []
    from pathspec import GitIgnoreSpec

    with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="replace") as f:
        spec = GitIgnoreSpec.from_lines(f)
    return [(folder, lambda path: spec.check_file(path).include)]


def _is_ignored(path: str, ignores: Sequence[_Ignores]) -> bool:
    """What the innermost ``.gitignore`` that speaks of it says."""
    for folder, says in reversed(ignores):
        verdict = says(os.path.relpath(path, folder) + ("/" if path.endswith("/") else ""))
        if verdict is not None:
            return verdict
    return False
