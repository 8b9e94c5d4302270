"""One run of the user's program, in a process of its own: set the stage, run it under the probe, write down what came.

Facts go to ``events.jsonl`` in the run's folder as they come, so that a crash loses nothing; the program's own output
goes to ``output.txt``.
"""

import ast
import json
import os
import sys
import traceback
import types
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


#: described devices by architecture: compute capability, name, streaming multiprocessors
DEVICES = {
    "sm_90a": ("9.0", "NVIDIA H100 80GB HBM3", 132),
    "sm_100a": ("10.0", "NVIDIA B200", 148),
}


def perform(request: Request) -> None:
    """Run the program and end the process. Never returns."""
    folder = Path(request.folder)
    events = open(folder / "events.jsonl", "a", encoding="utf-8")  # noqa: SIM115 (open until os._exit)

    def emit(kind: str, value: Any) -> None:
        events.write(json.dumps({kind: to_json(value)}) + "\n")
        events.flush()

    _redirect(folder / "output.txt")
    try:
        _perform(request, folder, emit)
    except BaseException as e:  # what goes wrong here is ours, and must not look like the program's
        emit("end", {"status": "blocked", "reason": f"mgpu-fix itself failed: {type(e).__name__}: {e}"})
        traceback.print_exc()
    finally:
        events.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _redirect(output: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
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

    end: dict[str, Any] = {"status": "ok", "exit_code": 0, "reason": "", "span": None}
    sys.argv = [request.path, *request.argv]
    # As the interpreter does: the arguments as they were given, the file by its absolute path.
    path = os.path.abspath(request.path)
    module = _main_module(path)
    try:
        exec(compile(_read(path), path, "exec"), module.__dict__)
        if request.call or not probe.calls:
            _call_kernel(request, module.__dict__)
        _wait_for_computations()
    except SystemExit as e:
        end["exit_code"] = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
        if end["exit_code"] or not probe.calls:
            end |= {"status": "stopped", "reason": f"it exits with {e.code!r}", "span": locate.error_span(e)}
    except BaseException as e:
        end |= _stopped(e, probe)
    finally:
        # What the interpreter still has to prove must not show up in the program's output.
        sys.stdout.flush()
        sys.stderr.flush()
    for call in probe.calls.values():
        emit("call", call.summary())
    emit("others", probe.others)
    emit("end", to_json(end))
    probe.prove_more(None if request.draws is None else frozenset(request.draws))
    emit("proved", True)


def _read(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read()


def _main_module(path: str) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = module
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    return module


def _call_kernel(request: Request, namespace: dict[str, Any]) -> None:
    """Call the kernel named, with arguments of the shapes given or from the module's ``example_args()``."""
    name = request.call or "kernel"
    function = namespace.get(name)
    if request.call and not callable(function):
        raise _Unusable(f"it defines no function {name!r}; --call names one at module level")
    if not callable(function):
        return
    if request.args:
        function(*map(_argument, request.args))
    elif callable(namespace.get("example_args")):
        function(*namespace["example_args"]())
    elif request.call:
        function()


class _Unusable(Exception):
    """The request does not fit the program; the message says what to do."""


def _argument(spec: str) -> Any:
    """An array from JAX's short text for its type, e.g. ``f32[128,128]``: counting up, so that no two rows agree."""
    import jax.numpy as jnp
    import numpy as np

    name, _, shape = spec.rstrip("]").partition("[")
    kinds = {"f": "float", "bf": "bfloat", "s": "int", "i": "int", "u": "uint"}
    letters = name.rstrip("0123456789")
    try:
        dtype = jnp.dtype("bool" if name == "bool" else kinds[letters] + name[len(letters) :])
        dims = tuple(int(n) for n in shape.split(",") if n)
    except (KeyError, TypeError, ValueError):
        raise _Unusable(f"--arg {spec!r} is no shape; write it like f32[128,128] or bf16[64]") from None
    return jnp.asarray((np.arange(int(np.prod(dims))) % 251).reshape(dims)).astype(dtype)


def _wait_for_computations() -> None:
    import jax

    jax.effects_barrier()


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
        ours = name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_TRACEBACK_FILTERING")
        if name.startswith(ENVIRONMENT) and not ours and name not in request.preset and os.environ.get(name) != value:
            emit("preset", {name: value})
            os._exit(0)

    sys.addaudithook(hook)


def imports_pallas(path: Path, seen: set[Path] | None = None) -> bool:
    """Whether a program, or a module beside it that it imports, speaks of Pallas; static, nothing is run."""
    seen = set() if seen is None else seen
    if path in seen or len(seen) > 200:
        return False
    seen.add(path)
    try:
        data = path.read_bytes()
        if b"pallas" in data or b"mosaic" in data:
            return True
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module or ''}.{a.name}".strip(".") for a in node.names)]
        for name in names:
            base = path.parent / Path(*name.split(".")) if name else path.parent
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file() and imports_pallas(file, seen):
                    return True
    return False


def main() -> None:
    """A cold run: the request is the JSON file named on the command line."""
    request = from_json(Request, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    perform(request)


def span_or_none(data: Any) -> Span | None:
    """A span from its JSON."""
    return from_json(Span, data) if data else None
