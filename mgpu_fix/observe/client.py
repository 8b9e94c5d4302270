"""The side of the observer that never imports JAX: starts the server, asks for runs, reads what they wrote."""

import contextlib
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgpu_fix.model import (
    Check,
    Facts,
    Failure,
    Function,
    KernelCall,
    Observation,
    Referred,
    digest,
    from_json,
    to_json,
)
from mgpu_fix.observe import start
from mgpu_fix.observe.command import Command
from mgpu_fix.observe.compiler import DRIVER, EXTRA, Compiled, Compiler, Lowered, MissingError, Module, told
from mgpu_fix.observe.device import EXTRA as GPU_EXTRA
from mgpu_fix.observe.device import Device, Exported
from mgpu_fix.observe.device import told as on_gpu
from mgpu_fix.observe.run import DEVICES, OWN, Request, span_or_none

#: how much of the program's own output is kept, in characters
OUTPUT_TAIL = 4000
#: the GPU that programs are shown, where none is asked for
DESCRIBED = next(iter(DEVICES))
#: a kernel that compiles wherever anything does
_CONTROL = """
import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]

x = jax.ShapeDtypeStruct((128,), "float32")
jax.jit(plgpu.kernel(copy, out_type=x)).trace(x)
"""
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
    where there is one.
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
        #: what its kernels are lowered to as the program stands
        self._standing: frozenset[str] | None = None
        self._device: Device | None = None
        self._no_device = ""
        self._compiler: Compiler | None = None
        #: by GPU, why kernels cannot be compiled for it, empty where they can
        self._unable: dict[str, str] = {}
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
            self._program, self._skip, self._slowest, self._standing = program, (), 0.0, None
        for _ in range(PRESETS + 1):
            observation, preset = self._observe(program, texts or {}, draws)
            if not preset:
                return observation
            self._preset.update(preset)
        return replace(observation, status="blocked", reason=f"it keeps setting {', '.join(self._preset)}")

    def _observe(
        self, program: Program, texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None
    ) -> tuple[Observation, dict[str, str]]:
        version = self.jax
        gpu = self._gpu(program)
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
            keep_modules=self._may_compile(arch) or gpu is not None,
            # As it stands a kernel fails, or nobody asks what it computes.
            export=gpu is not None and self._standing is not None,
        )
        started = time.monotonic()
        answer = self._ask(request)
        seconds = time.monotonic() - started
        self._slowest = self._slowest or seconds
        seen = self._gather(folder, answer, version, arch, seconds, request.timeout)
        observation = seen.observation
        if seen.lowered and not seen.preset and not self._unable.get(arch):
            observation = self._compiled(observation, seen.lowered, program)
        if gpu and not seen.preset:
            names = frozenset(name for kernel in seen.lowered.values() for name in kernel.names)
            self._standing = names if self._standing is None else self._standing
            changed = [call for call in seen.exported if not self._standing.issuperset(call.modules)]
            observation = on_gpu(observation, gpu.run(changed, folder, program.timeout), gpu)
        return observation, seen.preset

    def _ask(self, request: Request) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None
        self._running = True
        self._process.stdin.write(json.dumps(to_json(request)).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._read()
        self._running = False
        return answer

    def _gather(
        self, folder: Path, answer: dict[str, Any], version: str, arch: str, seconds: float, limit: float
    ) -> "_Seen":
        calls: dict[int, KernelCall] = {}
        lowered: dict[int, Lowered] = {}
        failures: list[Failure] = []
        declared: list[Function] = []
        end: dict[str, Any] = {}
        preset: dict[str, str] = {}
        callables: tuple[str, ...] = ()
        checks: tuple[Check, ...] = ()
        loaded: tuple[str, ...] = ()
        referred: tuple[Referred, ...] = ()
        exported: tuple[Exported, ...] = ()
        others, children = 0, False
        for kind, value in _events(folder / "events.jsonl"):
            match kind:
                case "failure":
                    failures.append(replace(from_json(Failure, value), jax=version))
                case "uncaught":
                    failures[value] = replace(failures[value], caught=False)
                case "amended":
                    number, facts = value
                    failures[number] = replace(failures[number], facts=from_json(Facts, facts))
                case "call":
                    call = from_json(KernelCall, value)
                    calls[call.number] = call
                case "lowered":
                    number, names, caught = value
                    lowered[number] = Lowered(tuple(names), caught)
                case "exported":
                    exported = tuple(from_json(Exported, v) for v in value)
                case "declared":
                    declared.append(from_json(Function, value))
                case "preset":
                    preset.update(value)
                case "callable":
                    callables = tuple(value)
                case "others":
                    others = value
                case "checks":
                    checks = tuple(from_json(Check, v) for v in value)
                case "loaded":
                    loaded = tuple(value)
                case "children":
                    children = True
                case "referred":
                    referred = tuple(from_json(Referred, v) for v in value)
                case "end":
                    end = value
        output = ""
        with contextlib.suppress(OSError):
            output = (folder / "output.txt").read_text(errors="replace")[-OUTPUT_TAIL:]
        status, reason = end.get("status", "crashed"), end.get("reason", "")
        if not end:
            if "timeout" in answer:
                status, reason = "timeout", f"it did not end within {limit:.0f} s; --timeout gives it more"
            elif "interrupted" in answer:
                reason = "it was interrupted"
            elif "signal" in answer:
                reason = f"signal {answer['signal']} ended it"
            else:
                reason = f"it ended the interpreter with code {answer.get('exit')}"
        observation = Observation(
            status=status,
            calls=tuple(calls.values()),
            failures=tuple(failures),
            reason=reason,
            span=span_or_none(end.get("span")),
            exit_code=end.get("exit_code"),
            output=output,
            folder=str(folder),
            jax=version,
            device=f"described {arch}",
            declared=tuple(declared),
            callables=callables,
            others=others,
            checks=checks,
            loaded=loaded,
            children=children,
            referred=referred,
            seconds=seconds,
        )
        large = tuple(c.label for c in calls.values() if any("too large" in n.why for n in c.numbers))
        self._skip = tuple(dict.fromkeys((*self._skip, *large)))
        return _Seen(observation, preset, lowered, exported)

    # ------------------------------------------------------------------ the GPU

    def unable_to_run(self) -> str:
        """Why no kernel can be run on a GPU here, and what to do; empty where one can. It is tried."""
        if self._device is None and not self._no_device:
            device = Device(Path(self.folder), self.python)
            try:
                device.find(self._exported_control)
                self._device = device
            except (MissingError, OSError) as e:
                self._no_device = str(e) or "no kernel runs on it"
        return self._no_device

    @property
    def gpu(self) -> str:
        """Name of the GPU that kernels can run on, empty where there is none."""
        return "" if self.unable_to_run() or self._device is None else f"{self._device.name} ({self._device.arch})"

    def _gpu(self, program: Program) -> Device | None:
        """Where a program's kernels are to run. Raises ObserverError where that is asked for and cannot be."""
        if program.device == "cpu":
            return None
        why = self.unable_to_run()
        if not why and self._device and program.arch not in ("", self._device.arch):
            why = f"it is {self._device.arch}, and --arch says {program.arch}"
        if why and program.device == "gpu":
            raise ObserverError(f"kernels cannot run on a GPU here: {why}")
        return None if why else self._device

    def _exported_control(self) -> tuple[Path, Path]:
        """A kernel that copies its operand, and the operand. Raises MissingError, and ObserverError."""
        # It is the first that the server is asked for where nothing was run yet.
        self._greeting()
        folder = Path(self.folder, "exported")
        folder.mkdir()
        self._ask(Request(Command("code", _CONTROL), str(folder), draws=(), keep_modules=True, export=True))
        (folder / "operand.float32.npy").write_bytes(_ramp(128))
        exported = next(folder.glob("*.exported"), None)
        if exported is None:
            raise MissingError(f"JAX exports no kernel; {GPU_EXTRA}")
        return exported, folder / "operand.float32.npy"

    # ------------------------------------------------------------------ compiling

    def unable_to_compile(self, arch: str) -> str:
        """Why kernels cannot be compiled for ``arch`` here, and what to do; empty if they can. It is tried."""
        if arch not in self._unable:
            compiler = self._its_compiler()
            try:
                compiler.find()
                self._unable[arch] = _fault(compiler.compile(self._control(), arch, 60))
            except (MissingError, OSError) as e:
                self._unable[arch] = str(e)
        return self._unable[arch]

    def _compiled(self, observation: Observation, lowered: Mapping[int, Lowered], program: Program) -> Observation:
        """An observation with what became of its kernels when they were compiled, where that can be done."""
        names = dict.fromkeys(name for kernel in lowered.values() for name in kernel.names)
        modules = [Module(Path(observation.folder, f"{name}.module"), name) for name in names]
        try:
            compiled = self._its_compiler().compile(modules, program.arch, program.timeout)
        except OSError:
            return observation
        # What is missing here must not be held against a kernel.
        blamed = {n: c for n, c in compiled.items() if c.resources or not self._is_unable(c.arch)}
        return told(observation, lowered, blamed)

    def _may_compile(self, arch: str) -> bool:
        """Whether the parts for it are there and were not found wanting."""
        if arch not in self._unable:
            try:
                self._its_compiler().find()
            except (MissingError, OSError) as e:
                self._unable[arch] = str(e)
        return not self._unable.get(arch)

    def _is_unable(self, arch: str) -> bool:
        return not self._its_compiler().has_compiled(arch) and bool(self.unable_to_compile(arch))

    def _its_compiler(self) -> Compiler:
        if self._compiler is None:
            self._compiler = Compiler(Path(self.folder), self.jax)
        return self._compiler

    def _control(self) -> list[Module]:
        """Modules of a program whose kernel is right."""
        folder = Path(self.folder, "control")
        if not folder.exists():
            folder.mkdir()
            self._ask(Request(Command("code", _CONTROL), str(folder), draws=(), keep_modules=True))
        return [Module(path, path.stem) for path in folder.glob("*.module")]


@dataclass(frozen=True)
class _Seen:
    """What a run wrote: what is known of it; variables that it wants set before JAX is imported; what its kernels were
    lowered to and exported as."""

    observation: Observation
    preset: dict[str, str]
    lowered: dict[int, Lowered]
    exported: tuple[Exported, ...]


def _ramp(length: int) -> bytes:
    """Different numbers, as a file of NumPy's."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, np.arange(length, dtype=np.float32), allow_pickle=False)
    return file.getvalue()


def _fault(tried: Mapping[str, Compiled]) -> str:
    """What keeps a kernel that is right from being compiled, and what to do; empty where nothing does."""
    if not tried:
        return "a kernel that does nothing does not lower"
    failed = next((c for c in tried.values() if c.resources is None), None)
    if failed is None or failed.unknown == DRIVER:
        return failed.unknown if failed else ""
    return f"{failed.refusal or failed.unknown}; what it may lack: {EXTRA}"


def _events(path: Path) -> Iterator[tuple[str, Any]]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as f:
        for line in f:
            # A crash can leave the last line half-written.
            with contextlib.suppress(ValueError):
                yield from json.loads(line).items()


def _environment() -> dict[str, str]:
    """The user's environment, with a platform that this machine has and JAX's full tracebacks.

    One OpenBLAS thread: a process with several may not fork.
    """
    own = {"JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(p) for p in text.split(".")[:3] if p.isdigit())
