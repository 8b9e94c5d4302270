"""What the commands do, once their options are parsed; each returns the exit code."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mgpu_fix import __version__, golden
from mgpu_fix.asking import terminal
from mgpu_fix.catalogue import CatalogueError, Rule, load
from mgpu_fix.console import Output, OutputError, Progress, UsageError, check_output, is_terminal, say
from mgpu_fix.levels import VerifiedBy
from mgpu_fix.model import Fix, Report, to_json
from mgpu_fix.observe import Command, CommandError, Observer, ObserverError, Program
from mgpu_fix.observe.client import DESCRIBED
from mgpu_fix.observe.command import parse
from mgpu_fix.observe.run import DEVICES
from mgpu_fix.outcomes import exit_code
from mgpu_fix.problems import FASTEST, Options
from mgpu_fix.repair import Task, carry_out
from mgpu_fix.report import json as json_report
from mgpu_fix.report.tell import Teller

#: what stops a command with one line and exit code 2
ERRORS = (ObserverError, CatalogueError, UsageError, OutputError)


def repair(
    tasks: Sequence[Task],
    output: Output,
    observer: Observer | None,
    oracle_python: str = "",
    interactive: bool = False,
) -> int:
    """``apply``, ``check`` and the commands about goldens; ``oracle_python`` is a Python that gives the numbers."""
    mode = tasks[0].mode
    check_output(output, (name for task in tasks for name in task.files))
    teller = Teller(output, mode == "apply")
    accept = terminal(teller.text, sys.stderr) if interactive else None
    with Progress(not output.quiet and is_terminal(sys.stderr) and not accept) as progress:
        report = carried_out(tasks, observer, oracle_python, progress.say, accept or (lambda fix: True))
    teller.whole(report)
    return exit_code(report, mode)


def carried_out(
    tasks: Sequence[Task],
    observer: Observer | None = None,
    oracle_python: str = "",
    progress: Callable[[str], None] = lambda text: None,
    accept: Callable[[Fix], bool] = lambda fix: True,
) -> Report:
    """What tasks come to, once they are known to make sense: one program after the other, which differ in no option
    but what is run. Raises UsageError, ObserverError, CatalogueError."""
    task = tasks[0]
    _check(task.options)
    places = [golden.place(name, task.goldens) for each in tasks for name in each.files]
    one = task.goldens and not task.program.command
    shared = next((path for path in places if one and places.count(path) > 1), None)
    if shared:
        raise UsageError(f"--golden: two of the files would share {shared}")
    with _running(observer) as running, _oracle(oracle_python) as oracle:
        if task.options.require is VerifiedBy.COMPILED:
            why = running.machine.unable_to_compile(task.program.arch or DESCRIBED)
            if why:
                raise UsageError(f"--require compiled: nothing can be compiled here, since {why}")
        if task.options.require is VerifiedBy.GPU:
            why = "--device cpu says so" if task.program.device == "cpu" else running.machine.unable_to_run()
            if why:
                raise UsageError(f"--require gpu: no kernel runs on a GPU here, since {why}")
        if task.options.prefer == FASTEST:
            why = "--device cpu says so" if task.program.device == "cpu" else running.machine.unable_to_run()
            if why:
                say(f"mgpu-fix: --prefer {FASTEST}: nothing is timed, since {why}\n", sys.stderr)
            tasks = [replace(each, program=replace(each.program, timed=not why)) for each in tasks]
        reports = [carry_out(each, running, load(), progress, oracle, accept) for each in tasks]
    return replace(reports[-1], files=tuple(file for each in reports for file in each.files))


def explain(query: str, as_json: bool) -> int:
    """One rule's page: by code, by name, or by an error pasted as ``query`` or on standard input."""
    text = query or ("" if sys.stdin is None else sys.stdin.buffer.read().decode("utf-8", "replace"))
    if not text.strip():
        raise UsageError("nothing to explain; give a code, a name, or an error on standard input")
    found = load().explaining(text)
    if not found:
        what = repr(query) if query else "this error"
        raise UsageError(f"no rule knows {what}; mgpu-fix rules lists them")
    rule = found[0]
    if as_json:
        say(json_report.dump(_described(rule)) + "\n")
    else:
        say(f"# {rule.code} {rule.name}\n\n{rule.page}\n\nSeen on JAX {rule.jax}.\n")
    return 0


def rules(as_json: bool) -> int:
    """The catalogue."""
    found = sorted(load().rules, key=lambda r: r.code)
    if as_json:
        say(json_report.dump([_described(r) for r in found]) + "\n")
        return 0
    width = max(len(r.name) for r in found)
    for rule in found:
        say(f"{rule.code}  {rule.name:{width}}  {'repairs ' if rule.repairs else 'explains'}  {rule.summary}\n")
    return 0


def serve() -> int:
    """Be an editor's language server until it is gone. Raises UsageError."""
    try:
        from mgpu_fix.lsp.server import create
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError("the language server needs pygls; install it with: pip install 'mgpu-fix[lsp]'") from None
    create(load()).serve()
    return 0


def doctor(observer: Observer | None) -> int:
    """What this machine can prove."""
    known = load().rules
    with _running(observer) as running:
        can, jax = running.capabilities, running.jax
        unable = {arch: running.machine.unable_to_compile(arch) for arch in DEVICES}
        gpu, no_gpu = running.machine.gpu, running.machine.unable_to_run()
    lines = [
        f"mgpu-fix  {__version__} on Python {sys.version.split()[0]}",
        f"JAX       {jax}",
        f"rules     {len(known)}, of which {sum(r.repairs for r in known)} repair",
        f"targets   {', '.join(DEVICES)} (--arch)",
        "lowered   yes: every kernel is lowered for CUDA; no GPU is needed",
        f"numbers   from Pallas' GPU interpreter: {'' if can['warps'] else 'no warp-level regions, '}no inline_mgpu",
        *(
            []
            if can["warps"]
            else ["          a newer JAX (0.11.2, on Python 3.12) also interprets warp-level regions"]
        ),
        *_compiles(unable),
        f"gpu       {f'yes: fixed kernels run on {gpu}, too' if gpu else f'no: {no_gpu}'}",
        f"runs      {'forked from one warm process' if can['fork'] else 'each in a fresh process'}",
    ]
    say("".join(f"{line}\n" for line in lines))
    return 0


def _compiles(unable: Mapping[str, str]) -> Iterator[str]:
    """What is said of compiling: for which GPUs, and why not for others."""
    able = [arch for arch, why in unable.items() if not why]
    if able:
        yield f"compiled  yes: to machine code, for {' and '.join(able)}"
    for why in dict.fromkeys(filter(None, unable.values())):
        archs = [arch for arch, reason in unable.items() if reason == why]
        yield f"compiled  no{f' for {archs[0]}' if able else ''}: {why}"


def program(
    run: str | None,
    module: str | None,
    call: str,
    args: tuple[str, ...],
    **rest: Any,
) -> Program:
    """How programs are to be run; ``rest`` are fields of :class:`Program`. Raises UsageError."""
    arch = rest["arch"]
    if arch and arch not in DEVICES:
        raise UsageError(f"--arch {arch} is not known; it is one of {', '.join(DEVICES)}")
    for name in ("rtol", "atol"):
        if rest.get(name) is not None and not math.isfinite(rest[name]):
            raise UsageError(f"--{name} {rest[name]} is no tolerance")
    if args and not call:
        raise UsageError("--arg needs --call NAME, the kernel that takes it")
    command = _command(run, module)
    if command and call:
        raise UsageError("--call is for files that are run as scripts; what --run or -m runs calls its kernels itself")
    return Program("", command, call, args, **rest)


def _command(run: str | None, module: str | None) -> Command | None:
    if run is None and module is None:
        return None
    if run is not None and module is not None:
        raise UsageError("--run and -m exclude each other: -m MODULE is short for --run 'python -m MODULE'")
    option = "-m" if run is None else "--run"
    try:
        command = parse(run if run is not None else f"python -m {module}")
    except CommandError as e:
        raise UsageError(f"{option}: {e}") from None
    if command.kind == "script" and not os.path.isfile(command.path):
        raise UsageError(f"{option}: there is no file {command.path}")
    return command


def codes(text: str) -> tuple[str, ...]:
    """Codes of the rules named in an option. Raises CatalogueError."""
    return tuple(rule.code for rule in load().named(text))


def _check(options: Options) -> None:
    """Raises UsageError or CatalogueError where no rule, no fix or no proof is meant."""
    load().named(",".join((*options.select, *options.ignore)))
    choices = sorted({choice for rule in load().rules for choice in rule.choices} | {FASTEST})
    if options.prefer and options.prefer not in choices:
        raise UsageError(f"no fix is called {options.prefer}; there are {', '.join(choices)}")


def _described(rule: Rule) -> dict[str, object]:
    fields = {"code": rule.code, "name": rule.name, "jax": rule.jax, "repairs": rule.repairs, "page": rule.page}
    return {**fields, "signatures": to_json(list(rule.signatures))}


@contextmanager
def _oracle(python: str) -> Iterator[Observer | None]:
    """Runs programs under another Python; None without one. Raises UsageError."""
    if not python:
        yield None
        return
    if not os.access(python, os.X_OK) or os.path.isdir(python):
        raise UsageError(f"--oracle-python: {python} is no Python that can be run")
    with Observer(python) as observer:
        yield observer


@contextmanager
def _running(observer: Observer | None) -> Iterator[Observer]:
    running = observer or Observer()
    try:
        yield running
    finally:
        running.close()
