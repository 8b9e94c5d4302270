"""One run of the user's program, in a process of its own: set the stage, run it under the probe, write down what came.

Facts go to ``events.jsonl`` in the run's folder as they come, so that a crash loses nothing; the program's own output
goes to ``output.txt``.
"""

import ast
import atexit
import contextlib
import functools
import importlib.util
import inspect
import json
import math
import os
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgpu_fix.model import Span, from_json, to_json

#: variables that JAX, XLA or Mosaic read when they are imported, so that setting them later has no effect
ENVIRONMENT = ("JAX_", "XLA_", "MOSAIC_")


@dataclass(frozen=True)
class Request:
    """What to run and how. ``overlay`` maps paths to files that hold the text to serve. ``draws`` are the kernel-call
    keys to prove on one more draw, None for those that failed. ``skip`` names kernels that are too large to interpret.
    ``budget`` is in seconds per kernel."""

    path: str
    folder: str
    argv: tuple[str, ...] = ()
    overlay: dict[str, str] = field(default_factory=dict)
    call: str = ""
    args: tuple[str, ...] = ()
    budget: float = 20.0
    timeout: float = 60.0
    arch: str = "sm_90a"
    include_caught: bool = False
    draws: tuple[tuple[str, ...], ...] | None = None
    skip: tuple[str, ...] = ()
    preset: dict[str, str] = field(default_factory=dict)
    cold: bool = False


#: local modules that are read to see whether a program uses Pallas, before only a run can tell
MOST_MODULES = 200
#: the largest array that --arg makes
MOST_ELEMENTS = 1 << 28

#: described devices by architecture: compute capability, name, streaming multiprocessors
DEVICES = {
    "sm_90a": ("9.0", "NVIDIA H100 80GB HBM3", 132),
    "sm_100a": ("10.0", "NVIDIA B200", 148),
}


def perform(request: Request) -> None:
    """Run the program and end the process. Never returns."""
    folder = Path(request.folder)
    opened, write, close = os.open, os.write, os.close

    def emit(kind: str, value: Any) -> None:
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
    from mgpu_fix.observe import jaxseam, locate, overlay
    from mgpu_fix.observe.probe import Probe

    _watch_environment(request, emit)
    overlay.install({path: Path(copy).read_bytes() for path, copy in request.overlay.items()})
    jaxseam.own_platform()
    jaxseam.describe_device(*DEVICES[request.arch])
    probe = Probe(folder, emit, request.budget, frozenset(request.skip), request.include_caught)
    probe.install()

    handlers = _take_exit_handlers()
    end: dict[str, Any] = {"status": "ok", "exit_code": 0, "reason": "", "span": None}
    sys.argv = [request.path, *request.argv]
    # As the interpreter does: the arguments as they were given, the file by its absolute path.
    path = os.path.abspath(request.path)
    module = _main_module(path)
    try:
        exec(compile(_read(path), path, "exec"), module.__dict__)
        if request.call or not probe.calls:
            _call_kernel(request, module.__dict__)
        _finish(handlers)
    except SystemExit as e:
        end["exit_code"] = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if end["exit_code"] or not probe.calls:
            end |= {"status": "stopped", "reason": f"it exits with {e.code!r}", "span": locate.error_span(e)}
    except BaseException as e:
        end |= _stopped(e, probe)
    _flush()
    emit("callable", [name for name, value in module.__dict__.items() if probe.is_kernel(value)])
    for call in probe.calls.values():
        emit("call", call.summary())
    probe.compare_scopes()
    emit("others", probe.others)
    emit("end", to_json(end))
    probe.prove_more(None if request.draws is None else frozenset(request.draws))


def _read(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read()


def _main_module(path: str) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = module
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    return module


def _call_kernel(request: Request, namespace: dict[str, Any]) -> None:
    """Call the kernel named, with arguments of the shapes given or from the module's ``example_args()``."""
    name = request.call or "kernel"
    function = namespace.get(name)
    if request.call and not callable(function):
        raise _Unusable(f"it defines no function {name!r}; --call names one at module level")
    examples = namespace.get("example_args")
    if not callable(function) or not (request.call or callable(examples)):
        return
    args = tuple(map(_argument, request.args))
    if not request.args and callable(examples):
        args = examples()
        if not isinstance(args, (tuple, list)):
            raise _Unusable("example_args() must return a tuple with one array for each operand")
    try:
        inspect.signature(function).bind(*args)
    except (TypeError, ValueError) as e:
        raise _Unusable(f"{name} cannot be called with {len(args)} arguments ({e}); give each one with --arg") from None
    function(*args)


class _Unusable(Exception):
    """The request does not fit the program; the message says what to do."""


def _argument(spec: str) -> Any:
    """An array from JAX's short text for its type, e.g. ``f32[128,128]``: counting up, so that no two rows agree."""
    import jax.numpy as jnp
    import numpy as np

    kinds = {"f": "float", "bf": "bfloat", "s": "int", "i": "int", "u": "uint", "bool": "bool"}
    parts = re.fullmatch(r"(bf|f|s|i|u|bool)(\d*)\[((?:\d+(?:,\d+)*)?)\]", spec)
    try:
        if parts is None:
            raise ValueError
        dtype = jnp.dtype(kinds[parts[1]] + parts[2])
    except (TypeError, ValueError):
        raise _Unusable(f"--arg {spec!r} is no type; write it like f32[128,128] or bf16[64]") from None
    dims = tuple(int(n) for n in parts[3].split(",") if n)
    if math.prod(dims) > MOST_ELEMENTS:
        raise _Unusable(f"--arg {spec} is too large to make here; call the kernel at a smaller shape")
    return jnp.asarray((np.arange(int(np.prod(dims))) % 251).reshape(dims)).astype(dtype)


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


def _stopped(error: BaseException, probe: Any) -> dict[str, Any]:
    from mgpu_fix.observe import locate

    if isinstance(error, _Unusable):
        return {"status": "blocked", "exit_code": 2, "reason": str(error)}
    _print_traceback(error)
    if probe.records.knows(error):
        # The program ended at a failure that is told already.
        return {"status": "stopped", "exit_code": 1}
    if is_pallas_error(error):
        probe.stopped_by(error)
        return {"status": "stopped", "exit_code": 1}
    last = (str(error).strip().splitlines() or [""])[0][:300]
    span = locate.error_span(error)
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


def _watch_environment(request: Request, emit: Any) -> None:
    """End the run where the program sets a variable that JAX has read already; it is run again with it set."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event != "os.putenv":
            return
        name, value = (os.fsdecode(a) for a in args)
        if name.startswith("JAX_") and _uses_jax_already():
            return
        ours = name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_TRACEBACK_FILTERING")
        if name.startswith(ENVIRONMENT) and not ours and name not in request.preset and os.environ.get(name) != value:
            emit("preset", {name: value})
            os._exit(0)

    sys.addaudithook(hook)


def _uses_jax_already() -> bool:
    """Whether the program has imported JAX, which reads its own variables then and not again."""
    import jax

    return any(value is jax for value in list(vars(sys.modules["__main__"]).values()))


def uses_pallas(path: Path, seen: set[Path] | None = None) -> bool | None:
    """Whether a program, or user code that it imports, speaks of Pallas; None if only a run can tell. Runs nothing."""
    seen = set() if seen is None else seen
    if path in seen:
        return False
    if len(seen) > MOST_MODULES:
        return None
    seen.add(path)
    try:
        data = path.read_bytes()
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
