"""What the commands do, once their options are parsed; each returns the exit code."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mgpu_fix import __version__
from mgpu_fix.catalogue import CatalogueError, Rule, load
from mgpu_fix.model import Report, to_json
from mgpu_fix.observe import Observer, ObserverError, Program
from mgpu_fix.observe.run import DEVICES
from mgpu_fix.repair import Task, carry_out, exit_code
from mgpu_fix.report import json as json_report
from mgpu_fix.report.text import TextReport

#: what stops a command with one line and exit code 2
ERRORS = (ObserverError, CatalogueError)


class UsageError(Exception):
    """Options that do not fit together or name nothing; the message is one line."""


@dataclass(frozen=True)
class Output:
    """How a report is told: ``format`` is text or json, ``colour`` auto, always or never, ``patch`` prints the diff
    alone to standard output and everything else to standard error."""

    format: str = "text"
    colour: str = "auto"
    patch: bool = False
    quiet: bool = False
    verbose: bool = False


def repair(task: Task, output: Output, observer: Observer | None) -> int:
    """``apply`` and ``check``."""
    _check(task)
    with _running(observer) as running, _Progress(not output.quiet and sys.stderr.isatty()) as progress:
        report = carry_out(task, running, load(), progress.say)
    _tell(report, task, output)
    return exit_code(report, task.mode)


def explain(query: str, as_json: bool) -> int:
    """One rule's page: by code, by name, or by an error pasted as ``query`` or on standard input."""
    catalogue = load()
    named = catalogue.find(query) if query else None
    found = [named] if named else catalogue.recognise(query or sys.stdin.read())
    if not found:
        raise UsageError(f"no rule knows {query!r}" if query else "no rule knows this error; mgpu-fix rules lists them")
    rule = found[0]
    if as_json:
        print(json_report.dump(_described(rule)))
    else:
        print(f"# {rule.code} {rule.name}\n\n{rule.page}\n\nSeen on JAX {rule.jax}.")
    return 0


def rules(as_json: bool) -> int:
    """The catalogue."""
    found = sorted(load().rules, key=lambda r: r.code)
    if as_json:
        print(json_report.dump([_described(r) for r in found]))
        return 0
    width = max(len(r.name) for r in found)
    for rule in found:
        print(f"{rule.code}  {rule.name:{width}}  {'repairs ' if rule.repairs else 'explains'}  {rule.summary}")
    return 0


def doctor(observer: Observer | None) -> int:
    """What this machine can prove."""
    known = load().rules
    with _running(observer) as running:
        can, jax = running.capabilities, running.jax
    print(f"mgpu-fix  {__version__} on Python {sys.version.split()[0]}")
    print(f"JAX       {jax}")
    print(f"rules     {len(known)}, of which {sum(r.repairs for r in known)} repair")
    print(f"targets   {', '.join(DEVICES)} (--arch)")
    print("lowered   yes: every kernel is lowered for CUDA; no GPU is needed")
    print(f"numbers   from Pallas' GPU interpreter: {'' if can['warps'] else 'no warp-level regions, '}no inline_mgpu")
    if not can["warps"]:
        print("          a newer JAX (0.11.2, on Python 3.12) also interprets warp-level regions")
    print("compiled  no: this version of mgpu-fix does not compile to PTX")
    print("gpu       no: this version of mgpu-fix runs no kernel on a GPU")
    print(f"runs      {'forked from one warm process' if can['fork'] else 'each in a fresh process'}")
    return 0


def program(
    call: str, args: list[str], timeout: float, budget: float, arch: str, include_caught: bool, cold: bool
) -> Program:
    """How programs are to be run. Raises UsageError."""
    if arch not in DEVICES:
        raise UsageError(f"--arch {arch} is not known; it is one of {', '.join(DEVICES)}")
    if args and not call:
        raise UsageError("--arg needs --call NAME, the kernel that takes it")
    return Program("", (), call, tuple(args), timeout, budget, arch, include_caught, cold)


def codes(text: str) -> tuple[str, ...]:
    """Rules named in an option."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check(task: Task) -> None:
    known = {name for rule in load().rules for name in (rule.code, rule.name)}
    for name in (*task.options.select, *task.options.ignore):
        if name not in known:
            raise UsageError(f"no rule is called {name}; mgpu-fix rules lists them")


def _tell(report: Report, task: Task, output: Output) -> None:
    stream = sys.stderr if output.patch else sys.stdout
    colour = output.colour == "always" or (output.colour == "auto" and stream.isatty() and "NO_COLOR" not in os.environ)
    text = TextReport(colour, task.mode == "apply", output.verbose)
    if output.format == "json":
        sys.stdout.write(json_report.render(report))
    elif output.patch:
        patch = "".join(file.diff for file in report.files)
        sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    if output.quiet:
        for file in report.files:
            if file.status == "blocked":
                print(f"{file.path}: {file.reason}", file=sys.stderr)
    elif output.format != "json":
        # A patch may hold bytes that are not this terminal's.
        told = text.render(report, diffs=not output.patch)
        stream.write(told.encode(stream.encoding or "utf-8", "replace").decode(stream.encoding or "utf-8"))


def _described(rule: Rule) -> dict[str, object]:
    fields = {"code": rule.code, "name": rule.name, "jax": rule.jax, "repairs": rule.repairs, "page": rule.page}
    return {**fields, "signatures": to_json(list(rule.signatures))}


@contextmanager
def _running(observer: Observer | None) -> Iterator[Observer]:
    running = observer or Observer()
    try:
        yield running
    finally:
        running.close()


class _Progress:
    """One line on a terminal that says what is going on, once it takes more than a second."""

    def __init__(self, on: bool) -> None:
        self.on, self.text = on, ""
        self._timer: threading.Timer | None = None
        self._shown = False

    def say(self, text: str) -> None:
        """What is going on now."""
        self.text = text
        if self._shown:
            self._show()

    def _show(self) -> None:
        self._shown = True
        sys.stderr.write(f"\r\x1b[K{self.text} …")
        sys.stderr.flush()

    def __enter__(self) -> "_Progress":
        if self.on:
            self._timer = threading.Timer(1.0, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
