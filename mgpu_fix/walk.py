"""Which files ``upgrade`` looks at. It loads nothing else, since most trees hold no kernels."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

#: Folders that hold no code of the project's own, as other tools leave them out too.
SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", ".eggs", "node_modules", "site-packages", "dist-packages"}
    | {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", "__pypackages__"}
)


#: Files that hold Python.
SUFFIXES = (".py", ".ipynb", ".md")


def pallas_files(paths: Sequence[str]) -> list[str]:
    """The :func:`python_files` that speak of Pallas, and those that cannot be read, which is for others to say."""
    return [path for path in python_files(paths) if speaks_of_pallas(path)]


def speaks_of_pallas(path: str) -> bool:
    """Whether a file holds a word that each use of Pallas for GPUs needs; True where it cannot be read."""
    try:
        data = _read(path)
    except OSError:
        return True
    return b"pallas" in data or (b"mosaic" in data and b"jax" in data)


def _read(path: str) -> bytes:
    """A file's bytes, without the layers of ``open``; nothing of a pipe, for which one would wait."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def python_files(paths: Sequence[str]) -> Iterator[str]:
    """Files with Python in the order of their names: those named, whatever they are called, and those in folders named.

    In folders ``.gitignore`` is respected, as far as it lies in them, symbolic links are not followed, and what holds
    no code of the project's own is left out. A path that does not exist is given back as it is.
    """
    seen: set[str] = set()
    for path in paths:
        for found in _files_in(path, ()) if os.path.isdir(path) else (path,):
            # One tree holds no file twice.
            real = os.path.realpath(found) if len(paths) > 1 else found
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
            entry.name.endswith(SUFFIXES)
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
