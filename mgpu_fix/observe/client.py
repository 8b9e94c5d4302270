"""The side of the observer that never imports JAX: starts the server, asks for runs, reads what they wrote."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgpu_fix.model import Observation, digest, to_json
from mgpu_fix.observe import start, transcript
from mgpu_fix.observe.command import Command
from mgpu_fix.observe.compiler import MissingError
from mgpu_fix.observe.machine import Machine, Wanted
from mgpu_fix.observe.run import DEVICES, OWN, Request

#: the GPU that programs are shown, where none is asked for
DESCRIBED = next(iter(DEVICES))
#: reruns with one more environment variable set, before it is taken for a program that sets them for ever
PRESETS = 6


class ObserverError(Exception):
    """Programs cannot be run here; the message says why and what to do."""


@dataclass(frozen=True)
class Program:
    """How to run the user's program: the script at ``path``, or one kernel of it with arguments of given shapes; or
    ``command`` in its place.

    ``timeout`` (seconds) bounds the first run; later ones get that much beyond what it took, and never less than three
    times as much. It bounds each compile, too. ``budget`` bounds the interpreter, in seconds a kernel. ``arch`` is the
    GPU that the program sees and its kernels are compiled for; where it is empty, each is compiled for what it uses.
    ``reference`` names a function to hold the numbers against, within ``rtol`` and ``atol``. ``device`` says where
    fixed kernels run: ``cpu`` nowhere but in the interpreter, ``gpu`` on this machine's GPU, too, ``auto`` as ``gpu``
    where there is one. ``timed`` says to time them there.
    """

    path: str
    command: Command | None = None
    call: str = ""
    args: tuple[str, ...] = ()
    timeout: float = 60.0
    budget: float = 20.0
    arch: str = ""
    include_caught: bool = False
    cold: bool = False
    reference: str = ""
    rtol: float | None = None
    atol: float | None = None
    device: str = "cpu"
    timed: bool = False


class Observer:
    """Runs programs in forks of one warm process of ``python``, in the working directory ``cwd``, else in this
    process's own. Use as a context manager; :meth:`start` early, since it imports JAX. Only :meth:`interrupt` may be
    called from another thread than the one that uses it."""

    def __init__(self, python: str = sys.executable, cwd: str | None = None) -> None:
        self.python, self.cwd = python, cwd
        self._process: subprocess.Popen[bytes] | None = None
        self._hello: dict[str, Any] | None = None
        self._folder: str | None = None
        # What is learned about the program that is being run, for its next runs.
        self._program: Program | None = None
        self._preset: dict[str, str] = {}
        self._skip: tuple[str, ...] = ()
        self._slowest = 0.0
        self._running = False
        self._cleared = 0
        #: what becomes of what kernels are lowered to
        self.machine = Machine(self)
        self.runs = 0

    def __enter__(self) -> "Observer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> str:
        """A private folder for everything the runs write; gone when the observer is closed."""
        if self._folder is None:
            # Known before it is there: an interrupt may come at any moment.
            self._folder = os.path.join(tempfile.gettempdir(), f"mgpu-fix-{secrets.token_hex(8)}")
            os.mkdir(self._folder, 0o700)
        return self._folder

    def start(self) -> None:
        """Start the server if it is not running; returns at once."""
        if self._process is None:
            with open(os.path.join(self.folder, "server.txt"), "wb") as said:
                self._process = subprocess.Popen(
                    # -P: the working directory is the user's, and may hold a random.py.
                    [self.python, "-P", start.__file__, "mgpu_fix.observe.server", self.folder],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    env=_environment(),
                    cwd=self.cwd,
                    start_new_session=True,
                )

    def clear(self) -> None:
        """Remove what the runs so far wrote; of none of them the numbers are needed any more."""
        for number in range(self._cleared + 1, self.runs + 1):
            shutil.rmtree(os.path.join(self.folder, f"run-{number}"), ignore_errors=True)
        self._cleared = self.runs

    def interrupt(self) -> None:
        """End the run under way, if there is one, and keep the server. Whoever waits for it gets a run that crashed."""
        if self._running and self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()

    def close(self) -> None:
        """End the server and the run under way, and remove what they wrote."""
        if self._process is not None:
            # Between runs it has nothing to lose, and shutting JAX down politely takes half a second. During a run it
            # has a child to end first, which it does when its input closes.
            assert self._process.stdin is not None and self._process.stdout is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            if self._running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(2)
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def jax(self) -> str:
        """Version of the JAX that runs programs. Raises ObserverError where there is none."""
        hello = self._greeting()
        if hello["error"]:
            raise ObserverError(f"JAX does not import {self._place}: {hello['error']}")
        if not hello["jax"]:
            raise ObserverError(f"JAX is not installed {self._place}; install it with: pip install 'jax>=0.10.2'")
        if _version(hello["jax"]) < (0, 10, 2):
            raise ObserverError(f"JAX {hello['jax']} is too old; mgpu-fix needs 0.10.2 or newer")
        return str(hello["jax"])

    @property
    def _place(self) -> str:
        return "beside mgpu-fix" if self.python == sys.executable else f"for {self.python}"

    @property
    def capabilities(self) -> dict[str, bool]:
        """What the JAX here can do: ``fork`` runs from a warm process, interpret ``warps``."""
        hello = self._greeting()
        return {"fork": bool(hello["fork"]), "warps": bool(hello["warps"])}

    def _greeting(self) -> dict[str, Any]:
        if self._hello is None:
            self.start()
            self._hello = self._read()
        return self._hello

    def _read(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith(b"{"):
            # What a site customisation prints is not an answer.
            line = self._process.stdout.readline()
        if not line:
            said = Path(self.folder, "server.txt").read_text(errors="replace").strip().splitlines()
            raise ObserverError(
                f"the process of {self.python} that runs programs ended: {said[-1] if said else 'no message'}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def observe(
        self,
        program: Program,
        texts: Mapping[str, bytes] | None = None,
        draws: tuple[tuple[str, ...], ...] | None = None,
    ) -> Observation:
        """Run the program once, with ``texts`` (path to bytes) in place of what the disk holds.

        ``draws`` are the kernel-call keys to run on one more draw of inputs (None: those that fail). One that is there
        several times is of as many kernels, which may have become one.
        """
        if program != self._program:
            environment = program.command.environment if program.command else ()
            self._preset = {name: value for name, value in environment if name not in OWN}
            self._program, self._skip, self._slowest = program, (), 0.0
            self.machine.forget()
        for _ in range(PRESETS + 1):
            observation, preset = self._observe(program, texts or {}, draws)
            if not preset:
                return observation
            self._preset.update(preset)
        return replace(observation, status="blocked", reason=f"it keeps setting {', '.join(self._preset)}")

    def _observe(
        self, program: Program, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None
    ) -> tuple[Observation, Mapping[str, str]]:
        version = self.jax
        wanted = Wanted(program.arch, program.device, program.timeout, program.timed)
        try:
            gpu = self.machine.gpu_for(wanted)
        except MissingError as e:
            raise ObserverError(str(e)) from None
        arch = program.arch or (gpu.arch if gpu else DESCRIBED)
        self.runs += 1
        folder = Path(self.folder, f"run-{self.runs}")
        folder.mkdir()
        overlay = {}
        for path, data in texts.items():
            copy = folder / f"{digest(data)}.py"
            copy.write_bytes(data)
            overlay[os.path.realpath(path)] = str(copy)
        request = Request(
            command=program.command or Command("script", program.path),
            folder=str(folder),
            overlay=overlay,
            call=program.call,
            args=program.args,
            budget=program.budget,
            timeout=max(3 * self._slowest, self._slowest + program.timeout),
            arch=arch,
            include_caught=program.include_caught,
            reference=program.reference,
            rtol=program.rtol,
            atol=program.atol,
            draws=draws,
            skip=self._skip,
            preset=self._preset,
            cold=program.cold or bool(self._preset),
            keep_modules=self.machine.may_compile(arch) or gpu is not None,
            export=gpu is not None and self.machine.knows_program,
        )
        started = time.monotonic()
        answer = self._ask(request)
        seconds = time.monotonic() - started
        self._slowest = self._slowest or seconds
        seen = transcript.read(folder, answer, version, f"described {arch}", seconds, request.timeout)
        observation = seen.observation
        large = tuple(c.label for c in observation.calls if any("too large" in n.why for n in c.numbers))
        self._skip = tuple(dict.fromkeys((*self._skip, *large)))
        if seen.lowered and not seen.preset and self.machine.may_compile(arch):
            observation = self.machine.compiled(observation, seen.lowered, wanted)
        if gpu and not seen.preset:
            observation = self.machine.ran(observation, seen.lowered, seen.exported, gpu, wanted)
        return observation, seen.preset

    def lowered(self, code: str, folder: str, export: bool) -> None:
        """Run ``code``, and leave what its kernels are lowered to in ``folder``. Raises ObserverError."""
        # It may be the first that the server is asked for.
        self._greeting()
        self._ask(Request(Command("code", code), folder, draws=(), keep_modules=True, export=export))

    def _ask(self, request: Request) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None
        self._running = True
        self._process.stdin.write(json.dumps(to_json(request)).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._read()
        self._running = False
        return answer


def _environment() -> dict[str, str]:
    """The user's environment, with a platform that this machine has and JAX's full tracebacks.

    One OpenBLAS thread: a process with several may not fork.
    """
    own = {"JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(p) for p in text.split(".")[:3] if p.isdigit())
