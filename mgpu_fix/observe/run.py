"""One run of the user's program, in a process of its own: set the stage, run it under the probe, write down what came.

Facts go to ``events.jsonl`` in the run's folder as they come, so that a crash loses nothing; the program's own output
goes to ``output.txt``.
"""

import ast
import atexit
import contextlib
import functools
import importlib.util
import json
import os
import sys
import threading
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu_fix.model import Referred, Span, from_json, to_json
from mgpu_fix.observe.command import Command
from mgpu_fix.observe.launch import Unusable, prepare

#: variables that JAX, XLA or Mosaic read when they are imported, so that setting them later has no effect, and those
#: of them that are ours to set
ENVIRONMENT = ("JAX_", "XLA_", "MOSAIC_")
OWN = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_TRACEBACK_FILTERING")


@dataclass(frozen=True)
class Request:
    """What to run and how. ``overlay`` maps paths to files that hold the text to serve. ``draws`` are the kernel-call
    keys to prove on one more draw, None for those that failed; of one that is there several times more calls are kept.
    ``skip`` names kernels that are too large to interpret.
    ``budget`` is in seconds per kernel. ``reference`` names a function that computes the same; ``rtol`` and ``atol``
    bound how far they may differ. ``keep_modules`` leaves what kernels are lowered to in the folder, ``export``
    what a GPU needs to run them, too."""

    command: Command
    folder: str
    overlay: dict[str, str] = field(default_factory=dict)
    call: str = ""
    args: tuple[str, ...] = ()
    budget: float = 20.0
    timeout: float = 60.0
    arch: str = "sm_90a"
    include_caught: bool = False
    reference: str = ""
    rtol: float | None = None
    atol: float | None = None
    draws: tuple[tuple[str, ...], ...] | None = None
    skip: tuple[str, ...] = ()
    preset: dict[str, str] = field(default_factory=dict)
    cold: bool = False
    keep_modules: bool = False
    export: bool = False


#: local modules that are read to see whether a program uses Pallas, before only a run can tell
MOST_MODULES = 200
#: packages that parse arguments, and end a program that was given none
PARSERS = ("argparse", "click", "typer", "absl", "fire", "docopt")

#: described devices by architecture: compute capability, name, streaming multiprocessors
DEVICES = {
    "sm_90a": ("9.0", "NVIDIA H100 80GB HBM3", 132),
    "sm_100a": ("10.0", "NVIDIA B200", 148),
}


def perform(request: Request) -> None:
    """Run the program and end the process. Never returns."""
    folder = Path(request.folder)
    opened, write, close, this = os.open, os.write, os.close, os.getpid

    run = this()

    def emit(kind: str, value: Any) -> None:
        # A fork of the program's counts its kernels by itself, and what it says would be taken for the run's.
        if this() != run:
            return
        # Opened for each line, by functions taken before the program ran: it may close all files and replace open().
        line = (json.dumps({kind: to_json(value)}) + "\n").encode()
        file = opened(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        write(file, line)
        close(file)

    _redirect(folder / "output.txt")
    try:
        _perform(request, folder, emit)
    except BaseException as e:  # what goes wrong here is ours, and must not look like the program's
        emit("end", {"status": "blocked", "reason": f"mgpu-fix itself failed: {type(e).__name__}: {e}"})
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        _flush()
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The program may have closed them, or put something else there.
        with contextlib.suppress(Exception):
            stream.flush()


def _redirect(output: Path) -> None:
    _flush()
    null, out = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115


def _perform(request: Request, folder: Path, emit: Any) -> None:
    from mgpu_fix.observe import examples, jaxseam, locate, overlay
    from mgpu_fix.observe.checks import Checks
    from mgpu_fix.observe.probe import Probe

    run = os.getpid()
    before = frozenset(sys.modules)
    overlay.install({path: Path(copy).read_bytes() for path, copy in request.overlay.items()})
    # What pytest-cov measures under the probe is no news for the user's own report.
    os.environ["COVERAGE_FILE"] = str(folder / "coverage")
    jaxseam.own_platform()
    jaxseam.describe_device(*DEVICES[request.arch])
    skip = frozenset(request.skip)
    kernels, export = Counter(request.draws or ()), request.export
    probe = Probe(folder, emit, request.budget, skip, kernels, request.include_caught, request.keep_modules, export)
    probe.install()
    checks = Checks(probe, is_pallas_error, str(folder))
    _watch(request, emit, checks, before)

    handlers = _take_exit_handlers()
    end: dict[str, Any] = {"status": "ok", "exit_code": 0, "reason": "", "span": None}
    namespace: dict[str, Any] = {}
    example = reference = None
    try:
        module, start = prepare(request.command, checks.run_pytest)
        namespace = module.__dict__
        start()
        example = examples.find(request.call, request.args, namespace) if request.call or not probe.calls else None
        if example:
            example.function(*example.args)
        reference = examples.reference(request.reference, namespace)
        _finish(handlers)
    except SystemExit as e:
        end["exit_code"] = int(e.code) if isinstance(e.code, int) else 0 if e.code is None else 1
        if end["exit_code"] or not probe.calls:
            end |= {"status": "stopped", "reason": _exit_reason(e, request), "span": locate.stop_span(e)}
    except BaseException as e:
        end |= _stopped(e, probe)
    if (checks.failed or checks.stopped) and end["status"] != "blocked":
        end |= {"status": "stopped", "reason": checks.reason(), "span": None}
    _flush()
    if os.getpid() != run:
        os._exit(end["exit_code"])
    emit("callable", [name for name, value in namespace.items() if probe.is_kernel(value)])
    for call in probe.settled():
        emit("call", call.summary())
    probe.compare_scopes()
    emit("others", probe.others)
    emit("checks", list(checks.failed.values()))
    emit("loaded", _loaded(before))
    if {"multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"} & set(sys.modules):
        emit("children", True)
    emit("end", to_json(end))
    probe.prove_more(None if request.draws is None else frozenset(request.draws))
    if request.export:
        emit("exported", probe.exported())
    if reference:
        emit("referred", _referred(request, probe, namespace, reference))


def _referred(request: Request, probe: Any, namespace: dict[str, Any], reference: Callable[..., Any]) -> list[Referred]:
    """What the program computes, held against a reference: the function that it is of, or else its one kernel."""
    from mgpu_fix.observe import examples

    trial = examples.Trial(probe, reference, bool(request.reference), request.rtol, request.atol)
    try:
        example = examples.find(request.call, request.args, namespace)
    except Exception:
        example = None
    if example:
        return [trial.of_example(example)]
    calls = probe.settled() if request.reference else []
    if len({call.kernel.name for call in calls}) > 1:
        why = "the program has several kernels; --call names the function that it is the reference of"
        return [Referred("the program", trial.name, why=why, given=True)]
    return [trial.of_call(call) for call in calls]


def _loaded(before: frozenset[str]) -> list[str]:
    """Files that modules of the program's came from."""
    files = (names.get("__file__") for names in _namespaces(before))
    return sorted({os.path.realpath(f) for f in files if isinstance(f, str) and f.endswith(".py")})


def _namespaces(before: frozenset[str]) -> list[dict[str, Any]]:
    """What modules of the program's hold. Not by attributes: some load something when they are asked for one."""
    # __main__ was there before, as another module.
    mine = [module for name, module in list(sys.modules.items()) if name not in before or name == "__main__"]
    return [dict(object.__getattribute__(m, "__dict__")) for m in mine if isinstance(m, types.ModuleType)]


def _finish(handlers: list[Callable[[], object]]) -> None:
    """What Python does when a script has come to its end: wait for its threads, then run its exit handlers."""
    import jax

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    while handlers:
        handlers.pop()()
    jax.effects_barrier()


def _take_exit_handlers() -> list[Callable[[], object]]:
    """From now on, what is registered for exit lands in the list: JAX's own handlers, which would shut it down before
    its kernels are proven, were registered before."""
    handlers: list[Callable[[], object]] = []

    def register(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        handlers.append(functools.partial(function, *args, **kwargs))
        return function

    def unregister(function: Callable[..., Any]) -> None:
        handlers[:] = [h for h in handlers if getattr(h, "func", None) != function]

    atexit.register, atexit.unregister = register, unregister  # type: ignore[assignment]
    return handlers


def _exit_reason(error: SystemExit, request: Request) -> str:
    reason = f"it exits with {error.code!r}"
    frames = [f.f_globals.get("__name__", "") for f, _ in traceback.walk_tb(error.__traceback__)]
    if any(str(name).partition(".")[0] in PARSERS for name in frames) and not request.command.argv:
        reason += "; give it its arguments with --run 'python FILE ...'"
    return reason


def _stopped(error: BaseException, probe: Any) -> dict[str, Any]:
    from mgpu_fix.observe import locate

    if isinstance(error, Unusable):
        return {"status": "blocked", "exit_code": 2, "reason": str(error)}
    _print_traceback(error)
    if probe.records.knows(error):
        # The program ended at a failure that is told already.
        return {"status": "stopped", "exit_code": 1}
    if is_pallas_error(error):
        probe.stopped_by(error)
        return {"status": "stopped", "exit_code": 1}
    last = (str(error).strip().splitlines() or [""])[0][:300]
    if isinstance(error, EOFError):
        last += "; standard input is empty in a run"
    span = locate.stop_span(error)
    return {"status": "stopped", "exit_code": 1, "reason": f"{type(error).__name__}: {last}", "span": span}


def _print_traceback(error: BaseException) -> None:
    """The program's traceback as it would have been without us in between."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    told = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = told
    while link is not None:
        link.stack = traceback.StackSummary.from_list([f for f in link.stack if not f.filename.startswith(package)])
        link = link.__cause__ or link.__context__
    with contextlib.suppress(Exception):
        print("".join(told.format()), end="", file=sys.stderr)


def is_pallas_error(error: BaseException) -> bool:
    """Whether an exception that ended the program comes from Pallas or from a name or argument it does not have."""
    modules = ("jax.experimental.pallas", "jax._src.pallas", "jax.experimental.mosaic")
    link: BaseException | None = error
    while link is not None:
        owner = getattr(link, "obj", None)
        name = (
            getattr(owner, "__name__", "") if isinstance(owner, types.ModuleType) else getattr(link, "name", "") or ""
        )
        if isinstance(link, (AttributeError, ImportError)) and str(name).startswith(modules):
            return True
        frames = [f.filename for f in traceback.extract_tb(link.__traceback__)]
        if any("/jax/" in f and ("pallas" in f or "mosaic" in f) for f in frames):
            return True
        if isinstance(link, TypeError) and _names_pallas_callable(str(link)):
            return True
        link = link.__cause__
    return False


def _names_pallas_callable(message: str) -> bool:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import mosaic_gpu as plgpu

    name, call, rest = message.partition("()")
    wrong = any(w in rest for w in ("unexpected keyword argument", "positional argument", "required"))
    first = name.split(".")[0]
    return bool(call) and wrong and (hasattr(plgpu, first) or hasattr(pl, first))


def _watch(request: Request, emit: Any, checks: Any, before: frozenset[str]) -> None:
    """Hear of what the program does that needs an answer: a variable that it sets which JAX has read already (the run
    ends, and is made again with it set), unittest, processes of its own."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        match event:
            case "os.putenv":
                name, value = (os.fsdecode(a) for a in args)
                if name.startswith("JAX_") and _uses_jax_already(before):
                    return
                new = name not in request.preset and name not in OWN and os.environ.get(name) != value
                if name.startswith(ENVIRONMENT) and new:
                    emit("preset", {name: value})
                    os._exit(0)
            case "import":
                checks.watch(args[0])
            case "os.fork" | "os.forkpty":
                emit("children", True)
            case "subprocess.Popen" | "os.posix_spawn" | "os.system" if _runs_python(args[:2]):
                emit("children", True)

    sys.addaudithook(hook)


def _runs_python(parts: tuple[Any, ...]) -> bool:
    """Whether Python is among an executable and its arguments, or the words of a shell's command."""
    flat = [p for part in parts for p in (part if isinstance(part, (list, tuple)) else [part])]
    words = [word for p in flat if isinstance(p, (str, bytes, os.PathLike)) for word in os.fsdecode(p).split()]
    return any("python" in os.path.basename(word) for word in words)


def _uses_jax_already(before: frozenset[str]) -> bool:
    """Whether the program has imported JAX, which reads its own variables then and not again."""
    values = (value for names in _namespaces(before) for value in names.values())
    return any(isinstance(v, types.ModuleType) and v.__name__.partition(".")[0] == "jax" for v in values)


def uses_pallas(path: Path, seen: set[Path] | None = None, text: bytes | None = None) -> bool | None:
    """Whether a program, or user code that it imports, speaks of Pallas; None if only a run can tell. Runs nothing.

    ``text`` is the program's where the file holds more than that.
    """
    seen = set() if seen is None else seen
    if path in seen:
        return False
    if len(seen) > MOST_MODULES:
        return None
    seen.add(path)
    try:
        data = path.read_bytes() if text is None else text
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError):
        return None
    if b"pallas" in data or b"mosaic" in data:
        return True
    found: bool | None = None if b"import_module" in data or b"__import__" in data else False
    for file in _imported_files(path, tree):
        uses = uses_pallas(file, seen) if file else None
        if uses:
            return True
        found = None if uses is None else found
    return found


def _imported_files(path: Path, tree: ast.Module) -> Iterator[Path | None]:
    """User files that a module imports, None for one that is not found; installed packages are left out."""
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{a.name}".strip(".") for a in node.names)]
        for name in names:
            base = path.parent.joinpath(*name.split("."))
            beside = [f for f in (base.with_suffix(".py"), base / "__init__.py") if name and f.is_file()]
            yield from beside
            if name and not beside and not path.parent.joinpath(name.split(".")[0]).exists():
                yield from _elsewhere(name.split(".")[0])


def _elsewhere(package: str) -> Iterator[Path | None]:
    if package in sys.stdlib_module_names:
        return
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None and "-packages" in spec.origin:
            return
    yield None


def main() -> None:
    """A cold run: the request is the JSON file named on the command line."""
    request = from_json(Request, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    perform(request)


def span_or_none(data: Any) -> Span | None:
    """A span from its JSON."""
    return from_json(Span, data) if data else None
