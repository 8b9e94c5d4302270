"""The Python API: what the commands do, as functions that return what they found and print nothing."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence

from mgpu_fix import commands
from mgpu_fix.catalogue import CatalogueError, Rule, load
from mgpu_fix.console import UsageError
from mgpu_fix.model import Report
from mgpu_fix.observe import ObserverError
from mgpu_fix.problems import Options
from mgpu_fix.repair import Task

__all__ = ["CatalogueError", "ObserverError", "Options", "UsageError", "apply", "check", "explain"]

#: one file or several
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def apply(
    files: Files,
    *,
    write: bool = True,
    run: str | None = None,
    call: str = "",
    args: Sequence[str] = (),
    reference: str = "",
    arch: str = "",
    timeout: float = 60.0,
    options: Options = Options(),
) -> Report:
    """Repair kernels, as ``mgpu-fix apply`` does: in place, or with ``write`` off only in the report's diffs.

    ``run`` is the command to run, once for all files, as ``"pytest tests"``; without it each file is run as a script.
    ``call`` names a function to call instead, with ``args`` like ``"f32[128,128]"``. ``reference`` names one that
    computes the same. ``options`` says which rules and which proofs. No pyproject.toml is read.

    A file that cannot be worked on is ``blocked`` in the report, with its reason. Raises UsageError where the arguments
    do not fit together, ObserverError where nothing can be run, CatalogueError where the rules do not load.
    """
    program = commands.program(run, None, call, tuple(args), reference=reference, arch=arch, timeout=timeout)
    with signals_kept():
        return commands.carried_out([Task(_names(files), "apply" if write else "preview", options, program)])


def check(
    files: Files,
    *,
    run: str | None = None,
    call: str = "",
    args: Sequence[str] = (),
    reference: str = "",
    arch: str = "",
    timeout: float = 60.0,
    options: Options = Options(),
) -> Report:
    """Run once and say what fails and which rule knows it, as ``mgpu-fix check`` does; arguments as in :func:`apply`.

    Changes nothing. Raises what :func:`apply` does.
    """
    program = commands.program(run, None, call, tuple(args), reference=reference, arch=arch, timeout=timeout)
    return commands.carried_out([Task(_names(files), "check", options, program)])


def explain(query: str) -> Rule | None:
    """The rule of that code or name, or the one that knows an error best; its ``page`` is Markdown. None if none does.

    Raises CatalogueError where the rules do not load.
    """
    return next(iter(load().explaining(query)), None)


def _names(files: Files) -> tuple[str, ...]:
    names = [files] if isinstance(files, (str, os.PathLike)) else files
    if not names:
        raise UsageError("no file is named")
    return tuple(os.fspath(name) for name in names)


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """A command ignores interrupts once it writes, since it ends then; whoever calls us goes on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    kept = {number: signal.getsignal(number) for number in (getattr(signal, name) for name in names)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            # None is a handler that was not installed from Python.
            if handler is not None:
                signal.signal(number, handler)
