"""The process that imports JAX once and forks one process per run. It runs no user code and starts no backend.

Requests come as JSON lines on standard input: a ``Request``; the answer, one JSON line on standard output, says how
the run ended: ``{"exit": code}``, ``{"signal": number}``, ``{"timeout": true}`` or ``{"interrupted": true}``, the last
where an empty line came meanwhile. At end of input the server ends, and so does the run that is under way, and the
folder named on its command line goes.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any, NoReturn

from mgpu_fix.model import from_json, to_json
from mgpu_fix.observe import start
from mgpu_fix.observe.run import Request, perform


def warm_up() -> str:
    """Import all that a run needs; returns JAX's version, or "" where JAX is missing. Starts no backend.

    Raises ImportError where JAX is there and a part of it is not.
    """
    try:
        import jax
    except ModuleNotFoundError as e:
        if e.name != "jax":
            raise
        return ""
    from mgpu_fix.observe import checks, examples, locate, overlay, probe  # noqa: F401

    return str(jax.__version__)


def can_fork() -> bool:
    """Whether forking is sound here: one thread, no backend yet."""
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return False
    from mgpu_fix.observe import jaxseam

    return not jaxseam.backend_started()


def main() -> None:
    """Answer requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    error = ""
    version = ""
    try:
        version = warm_up()
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    hello = {"jax": version, "error": error, "fork": False, "warps": False}
    if version:
        from mgpu_fix.observe import jaxseam

        hello |= {"fork": can_fork(), "warps": jaxseam.interprets_warps()}
    _answer(answers, hello)
    for line in _lines():
        request = from_json(Request, json.loads(line))
        child = _fork(request) if can_fork() and not request.cold else _spawn(request)
        _answer(answers, _outcome(child, request))
    _end()


def _answer(answers: Any, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def _lines() -> Any:
    buffer = b""
    while True:
        chunk = os.read(0, 65536)
        if not chunk:
            return
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            # There was no run any more that an empty line could interrupt.
            if line:
                yield line


def _end() -> NoReturn:
    """The client is gone. If it was killed it could not take its folder with it."""
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    os._exit(0)


def _spawn(request: Request) -> int:
    """A run in a fresh process, for programs that must set variables before JAX is imported."""
    path = os.path.join(request.folder, "request.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(to_json(request), f)
    command = [sys.executable, "-P", start.__file__, "mgpu_fix.observe.run", path]
    environment = {**os.environ, **request.preset}
    with open(os.path.join(request.folder, "output.txt"), "ab") as out:
        process = subprocess.Popen(
            command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    process.returncode = 0  # waiting for it is ours
    return process.pid


def _fork(request: Request) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        perform(request)
    return child


def _outcome(child: int, request: Request) -> dict[str, Any]:
    """How the run ended; it and whatever it left in its process group are gone then."""
    deadline = time.monotonic() + request.timeout
    if can_fork():
        from mgpu_fix.observe import jaxseam

        # The first run imports this for itself; meanwhile we do, for all later ones.
        jaxseam.import_the_rest()
    try:
        return _wait(child, deadline)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)


def _wait(child: int, deadline: float) -> dict[str, Any]:
    pause = 0.002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exit": os.WEXITSTATUS(status)}
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"timeout": True}
        # Nothing is asked during a run but that it ends; where the client closes our input all ends.
        if select.select([0], [], [], pause)[0]:
            closed = not os.read(0, 65536)
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if closed:
                _end()
            return {"interrupted": True}
        pause = min(0.02, pause * 1.5)
