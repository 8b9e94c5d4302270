"""Compiles lowered kernels to machine code, without a GPU, with the compiler in JAX's CUDA plugin. Imports no JAX.

The compiler asks the driver's library which GPU to compile for, and loads there what it made. ``driver_stub.c`` stands
in for that library, in the processes of ``compile_worker.py`` alone, one for each compile.
"""

import contextlib
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from mgpu_fix.model import Failure, KernelCall, Observation, Resources, Span, digest

#: what to install where the parts are missing
EXTRA = "pip install 'mgpu-fix[compile]'"
#: compiles at a time, which are large processes
MOST_AT_ONCE = min(os.cpu_count() or 1, 8)
#: why nothing is compiled beside a real driver
DRIVER = "a CUDA driver is installed, and this version compiles only where there is none"
#: instructions that only one kind of GPU has, as they stand in a lowered module
_ONLY_BLACKWELL = re.compile(rb"tcgen05\.(alloc|ld|st|mma|cp|commit|wait|fence|shift)\b")
_SOURCE = Path(__file__).with_name("driver_stub.c")
_WORKER = Path(__file__).with_name("compile_worker.py")
#: lines of a compile that say nothing of the kernel; an error with its place; the assembler's error; an abort
_LOGGED = re.compile(r"[IW]\d{4} |WARNING: All log messages before absl|\s*@ +0x|\*\*\* ")
_DIAGNOSED = re.compile(r"loc\((.*)\): error: (.*)")
_PLACE = re.compile(r'"([^"]+\.py)":(\d+):(\d+)')
_ASSEMBLER = re.compile(r"; error +: (.*)")
_FATAL = re.compile(r"F\d{4} [^\]]*\] ")


class MissingError(Exception):
    """Nothing can be compiled here; the message says why and what to do."""


@dataclass(frozen=True)
class Module:
    """A lowered kernel: the file it lies in, and a name that is equal for modules of the same code."""

    path: Path
    name: str


@dataclass(frozen=True)
class Lowered:
    """What a kernel call was lowered to, by name. ``caught`` says that the program expects an error there."""

    names: tuple[str, ...]
    caught: bool = False


@dataclass(frozen=True)
class Compiled:
    """What became of a compile for ``arch``: what the kernel takes, or the compiler's ``refusal`` and the place that it
    names in the user's file, or ``unknown``, why nothing is known."""

    arch: str
    resources: Resources | None = None
    refusal: str = ""
    place: tuple[str, int, int] | None = None
    unknown: str = ""


@dataclass(frozen=True)
class _Parts:
    stub: Path
    plugin: Path
    runtime: Path
    tools: Path


class Compiler:
    """Compiles modules for the JAX of version ``jax``; ``folder`` is private and receives what the compiles write."""

    def __init__(self, folder: Path, jax: str) -> None:
        self.folder, self.jax = folder, jax
        self._parts: _Parts | None = None
        self._done: dict[tuple[str, str], Compiled] = {}

    def find(self) -> None:
        """Find the compiler, and build what it needs. Raises MissingError."""
        if self._parts is None:
            plugin, runtime, tools = _plugin(self.jax)
            self._parts = _Parts(_stub(self.folder), plugin, runtime, tools)

    def compile(self, modules: Iterable[Module], arch: str, seconds: float) -> dict[str, Compiled]:
        """What becomes of each module, by its name. ``arch`` is what to compile for, empty for what the module uses;
        ``seconds`` bounds each compile. Raises MissingError, and OSError where no process can be started."""
        self.find()
        targets = {m.name: (m, arch or target(m.path.read_bytes())) for m in modules}
        waiting = [(m, a) for m, a in targets.values() if (m.name, a) not in self._done]
        running: list[_Process] = []
        refused: dict[tuple[str, str], Compiled] = {}
        try:
            while waiting or running:
                while waiting and len(running) < MOST_AT_ONCE:
                    running.append(self._start(*waiting.pop(), seconds))
                for process in [p for p in running if p.ended()]:
                    running.remove(process)
                    compiled = process.result()
                    # A refusal names a line, which another text of the same code has elsewhere.
                    kept = refused if compiled.refusal else self._done
                    kept[process.module.name, process.arch] = compiled
                time.sleep(0.002)
        finally:
            for process in running:
                process.kill()
        known = {**self._done, **refused}
        return {name: known[name, a] for name, (_, a) in targets.items()}

    def has_compiled(self, arch: str) -> bool:
        """Whether a compile for ``arch`` succeeded before."""
        return any(a == arch and compiled.resources for (_, a), compiled in self._done.items())

    def _start(self, module: Module, arch: str, seconds: float) -> "_Process":
        assert self._parts is not None
        parts, scratch = self._parts, self.folder / f"compile-{secrets.token_hex(4)}"
        scratch.mkdir()
        command = [sys.executable, "-I", "-S", str(_WORKER), str(parts.stub), str(parts.plugin), arch]
        with open(scratch / "out.txt", "wb") as out, open(scratch / "said.txt", "wb") as said:
            process = subprocess.Popen(
                [*command, str(int(seconds)), str(module.path)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=said,
                env=_environment(parts, scratch),
                # The compiler looks around in it.
                cwd=scratch,
                start_new_session=True,
            )
        return _Process(process, module, arch, scratch, seconds, time.monotonic() + seconds)


@dataclass
class _Process:
    """A compile under way."""

    process: subprocess.Popen[bytes]
    module: Module
    arch: str
    scratch: Path
    seconds: float
    deadline: float
    late: bool = False

    def ended(self) -> bool:
        if self.process.poll() is None and time.monotonic() > self.deadline:
            self.late = True
            self.kill()
        return self.process.poll() is not None

    def kill(self) -> None:
        if self.process.poll() is None:
            # Its assembler is another process.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def result(self) -> Compiled:
        out, said = (
            (self.scratch / name).read_text(encoding="utf-8", errors="replace") for name in ("out.txt", "said.txt")
        )
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.late:
            why = f"it was not compiled within {self.seconds:.0f} s; --timeout gives it more"
            return Compiled(self.arch, unknown=why)
        return read(self.arch, self.process.returncode, out, said)


def target(module: bytes) -> str:
    """The GPU that a lowered module is for, by the instructions in it."""
    return "sm_100a" if _ONLY_BLACKWELL.search(module) else "sm_90a"


def read(arch: str, code: int, out: str, said: str) -> Compiled:
    """What became of a compile, by how its process ended and what it wrote to its two streams."""
    if code:
        words, place = _words(said)
        ended = f"signal {-code} ended the compiler" if code < 0 else f"the compiler ended with status {code}"
        # A kill comes from outside, for want of memory, say; anything else is how the compiler gives up.
        if code in (-signal.SIGKILL, -signal.SIGALRM):
            return Compiled(arch, unknown=ended)
        return Compiled(arch, refusal=words or ended, place=place)
    try:
        answer: dict[str, Any] = json.loads(out.strip().rpartition("\n")[2])
    except ValueError:
        return Compiled(arch, unknown="the compiler ended without a word")
    if "ok" not in answer:
        return Compiled(arch, unknown=DRIVER if "driver" in answer else answer["unusable"])
    if not answer["ok"]:
        words, place = _words(said)
        return Compiled(arch, refusal=words or "the compiler refuses it", place=place)
    return Compiled(arch, _resources(arch, out, answer["shared"]))


def _words(said: str) -> tuple[str, tuple[str, int, int] | None]:
    """The one line that says why, and the place that the compiler names."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _LOGGED.match(line)]
    diagnosed = next(filter(None, map(_DIAGNOSED.match, lines)), None)
    places = _PLACE.findall(diagnosed[1]) if diagnosed else []
    # The innermost of the names that a place is wrapped in comes last.
    place = (places[-1][0], int(places[-1][1]), int(places[-1][2])) if places else None
    assembler = next(filter(None, (_ASSEMBLER.search(line) for line in lines)), None)
    if assembler:
        return f"ptxas: {assembler[1]}", place
    if diagnosed:
        return diagnosed[2], place
    line = next((line for line in lines if "LLVM ERROR" in line or _FATAL.match(line)), lines[-1] if lines else "")
    return _FATAL.sub("", line), place


def _resources(arch: str, out: str, dynamic: int) -> Resources:
    """What the assembler says of a kernel, with the shared memory that it is launched with."""

    def number(pattern: str) -> int:
        return max((int(n) for n in re.findall(pattern, out)), default=0)

    losses = re.findall(r"(Potential Performance Loss: .*)", out)
    return Resources(
        arch=arch,
        registers=number(r"Used (\d+) registers"),
        spill_bytes=number(r"(\d+) bytes spill stores"),
        shared_bytes=number(r"(\d+) bytes smem") + dynamic,
        warnings=tuple(dict.fromkeys(losses)),
    )


def told(observation: Observation, lowered: Mapping[int, Lowered], compiled: Mapping[str, Compiled]) -> Observation:
    """An observation with what became of its calls' modules: ``lowered`` holds them by the call's number."""
    calls, failures = [], list(observation.failures)
    for call in observation.calls:
        kernel = lowered.get(call.number, Lowered(()))
        found = [compiled[name] for name in kernel.names if name in compiled]
        takes = [c.resources for c in found if c.resources]
        refused = next((c for c in found if c.refusal), None)
        if refused is not None:
            failures.append(replace(_failure(call, refused), caught=kernel.caught, jax=observation.jax))
            calls.append(replace(call, stage="compile", failures=(*call.failures, len(failures) - 1)))
        elif takes and len(takes) == len(found):
            calls.append(replace(call, resources=_largest(takes)))
        else:
            calls.append(replace(call, uncompiled=next((c.unknown for c in found if c.unknown), "")))
    return replace(observation, calls=tuple(calls), failures=tuple(failures))


def _failure(call: KernelCall, refused: Compiled) -> Failure:
    span = call.span
    if refused.place is not None:
        path, line, column = refused.place
        span = Span(path, line, column, line, column)
    message = f"{refused.refusal} (compiling for {refused.arch})"
    return Failure("CompileError", message, "compile", span, call.name, (("CompileError", message),))


def _largest(found: Sequence[Resources]) -> Resources:
    return Resources(
        arch=found[0].arch,
        registers=max(r.registers for r in found),
        spill_bytes=max(r.spill_bytes for r in found),
        shared_bytes=max(r.shared_bytes for r in found),
        warnings=tuple(dict.fromkeys(w for r in found for w in r.warnings)),
    )


# ---------------------------------------------------------------------- parts


def _plugin(jax: str) -> tuple[Path, Path, Path]:
    """JAX's CUDA plugin, the runtime of its kernels, and where its tools would be. Raises MissingError."""
    missing = f"JAX's CUDA plugin is not installed; {EXTRA}"
    # In the order in which JAX looks for it.
    for cuda, folder in ((13, "cu13"), (12, "cuda_nvcc")):
        try:
            library, support = distribution(f"jax-cuda{cuda}-pjrt"), distribution(f"jax-cuda{cuda}-plugin")
        except PackageNotFoundError:
            continue
        if {library.version, support.version} != {jax}:
            missing = f"JAX is {jax} and its CUDA plugin {library.version}; {EXTRA}"
            continue
        plugin = Path(str(library.locate_file(f"jax_plugins/xla_cuda{cuda}/xla_cuda_plugin.so")))
        runtime = Path(str(support.locate_file(f"jax_cuda{cuda}_plugin/libmosaic_gpu_runtime.so")))
        return plugin, runtime, plugin.parent.parent.parent / "nvidia" / folder
    raise MissingError(missing)


def _environment(parts: _Parts, scratch: Path) -> dict[str, str]:
    dropped = ("MOSAIC_GPU_DUMP", "MOSAIC_GPU_LLVM", "LD_PRELOAD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    path = os.pathsep.join(filter(None, (str(parts.tools / "bin"), os.environ.get("PATH", ""))))
    own = {
        "MOSAIC_GPU_RUNTIME_LIB_PATH": str(parts.runtime),
        "MOSAIC_GPU_CUDA_ROOT": str(parts.tools),
        # What the assembler says of registers goes to standard output then.
        "MOSAIC_GPU_DUMP_PTXAS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TMPDIR": str(scratch),
        "PATH": path,
    }
    return {**kept, **own}


def _stub(folder: Path) -> Path:
    """The stand-in for the driver's library, built once and kept in the user's cache. Raises MissingError."""
    if sys.platform != "linux":
        raise MissingError("JAX has a CUDA plugin for Linux only")
    data = _SOURCE.read_bytes() + platform.machine().encode()
    name = f"driver-stub-{digest(data)}.so"
    for place in (cache_folder(), folder):
        if place is None:
            continue
        if _is_own(place / name):
            return place / name
        with contextlib.suppress(OSError):
            return _built(place / name)
    raise MissingError("the stand-in for the CUDA driver cannot be written anywhere")


def cache_folder() -> Path | None:
    """A folder of the user's for what can be made again, None where there is none that is theirs alone."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    folder = Path(base, "mgpu-fix")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if _is_own(folder) else None


def _is_own(path: Path) -> bool:
    """Whether nobody else can have put there what lies at ``path``."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _built(path: Path) -> Path:
    """Compile the stand-in to ``path``, which then is there as a whole. Raises OSError where it cannot be written, and
    MissingError where there is no C compiler."""
    compilers = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    found = next((words for text in compilers if (words := shlex.split(text)) and shutil.which(words[0])), None)
    if found is None:
        raise MissingError("there is no C compiler; install gcc or clang, or name one in CC")
    part = path.with_name(f"{path.stem}-{secrets.token_hex(4)}.part")
    command = [*found, "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", str(part), str(_SOURCE)]
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700))
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            why = said[-1] if said else f"it ends with status {done.returncode}"
            raise MissingError(f"{found[0]} cannot build the stand-in for the CUDA driver: {why}")
        part.chmod(0o700)
        os.replace(part, path)
    except subprocess.TimeoutExpired:
        raise MissingError(f"{found[0]} does not come to its end") from None
    finally:
        part.unlink(missing_ok=True)
    return path
