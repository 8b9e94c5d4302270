"""Runs kernels on this machine's GPU, one after the other, each in a process of its own. Imports no JAX.

A kernel is what ``jax.export`` made of it in the run of its program, so that nothing of the program runs there.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgpu_fix.model import Numbers, Observation
from mgpu_fix.observe import start
from mgpu_fix.observe.compiler import MissingError, target

#: what to install where the parts are missing
EXTRA = "pip install 'mgpu-fix[gpu]'"
#: GPUs by their compute capability
_ARCHS = {"9.0": "sm_90a", "10.0": "sm_100a"}
#: instructions that only Hopper has, as they stand in a lowered module
_ONLY_HOPPER = re.compile(rb"wgmma\.(mma_async|fence|commit_group|wait_group)")


@dataclass(frozen=True)
class Given:
    """One set of operands of a call: its digest, the files that hold it, and those of one more draw of it, if any."""

    inputs: str
    operands: tuple[str, ...]
    draw: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    """A kernel call that can be run elsewhere: its number, the file that holds it, what it was lowered to, and what it
    was called with."""

    number: int
    file: str
    modules: tuple[str, ...]
    given: tuple[Given, ...] = ()


@dataclass(frozen=True)
class Ran:
    """What became of a call on the GPU: by the digest of its operands the files with its outputs and those for the
    draw, or its ``fault``; neither where nothing is known of it. ``seconds`` is what it takes, where it was timed."""

    outputs: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    fault: str = ""
    seconds: float | None = None


class Device:
    """The GPU of this machine. ``folder`` is private and receives what is computed; ``python`` has the JAX that
    exported the kernels, and runs them on ``platform``. ``timed`` says to time them, too."""

    def __init__(self, folder: Path, python: str, platform: str = "cuda") -> None:
        self.folder, self.python, self.platform = folder, python, platform
        self.name = self.arch = ""
        self.timed = False
        self._ran: dict[tuple[tuple[str, ...], tuple[Given, ...], bool], Ran] = {}

    def find(self, control: Callable[[], tuple[Path, Path]]) -> None:
        """See whether kernels run here: ``control`` gives one that copies its operand, and that operand. Raises
        MissingError."""
        if self.platform == "cuda" and not _is_there():
            raise MissingError("there is no NVIDIA GPU here")
        exported, operand = control()
        answer = self._work(exported, [[str(operand)]], 120.0)
        if "outputs" not in answer or "fault" in answer:
            raise MissingError(answer.get("fault") or answer.get("unusable", ""))
        [[copy]] = answer["outputs"]
        if Path(copy).read_bytes() != operand.read_bytes():
            raise MissingError("a kernel that copies an array gives another one")
        arch = str(answer["arch"])
        if self.platform == "cuda" and arch not in _ARCHS:
            raise MissingError(f"{answer['name']} has compute capability {arch}, and Mosaic GPU is for 9.0 and 10.0")
        self.name, self.arch = str(answer["name"]), _ARCHS.get(arch, arch)

    def suits(self, modules: Iterable[Path]) -> bool:
        """Whether no kernel among these modules is for another GPU."""
        texts = [path.read_bytes() for path in modules]
        if self.arch == "sm_90a":
            return all(target(text) == self.arch for text in texts)
        return self.arch != "sm_100a" or not any(_ONLY_HOPPER.search(text) for text in texts)

    def run(self, exported: Sequence[Exported], folder: Path, seconds: float) -> dict[int, Ran]:
        """What becomes of each call, by its number; files are in ``folder``, and ``seconds`` bounds each kernel."""
        found = {}
        for call in exported:
            key = call.modules, tuple(replace(g, operands=(), draw=()) for g in call.given), self.timed
            if key not in self._ran and self.suits(folder / f"{name}.module" for name in call.modules):
                self._ran[key] = self._run(call, folder, seconds)
            if key in self._ran:
                found[call.number] = self._ran[key]
        return found

    def _run(self, call: Exported, folder: Path, seconds: float) -> Ran:
        sets = [files for given in call.given for files in (given.operands, given.draw) if files]
        answer = self._work(folder / call.file, [[str(folder / file) for file in files] for files in sets], seconds)
        if "fault" in answer or "outputs" not in answer:
            return Ran({}, answer.get("fault", ""))
        outputs = iter(answer["outputs"])
        found = {g.inputs: (tuple(next(outputs)), tuple(next(outputs)) if g.draw else ()) for g in call.given}
        return Ran(found, seconds=answer.get("seconds"))

    def _work(self, exported: Path, sets: Sequence[Sequence[str]], seconds: float) -> dict[str, Any]:
        """The worker's answer, with whole paths of its files."""
        scratch = self.folder / f"gpu-{secrets.token_hex(4)}"
        scratch.mkdir()
        module = "mgpu_fix.observe.device_worker"
        given = [str(exported), str(seconds), json.dumps(sets), str(int(self.timed))]
        command = [self.python, "-P", start.__file__, module, *given]
        with open(scratch / "said.txt", "wb") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=scratch,
                env=_environment(self.platform),
                start_new_session=True,
            )
        late = ""
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            late = f"it does not come to its end within {seconds:.0f} s"
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                out, _ = process.communicate()
        return _answer(process.returncode, out.decode(errors="replace"), scratch, late)


def _answer(code: int, out: str, scratch: Path, late: str) -> dict[str, Any]:
    """What a worker that ended with ``code`` said. One that was ``late``, but only with its timing, said enough."""
    try:
        answer: dict[str, Any] = json.loads(out.strip().rpartition("\n")[2])
    except ValueError:
        if late:
            return {"fault": late}
        if code in (-signal.SIGKILL, -signal.SIGALRM):
            # A kill comes from outside.
            return {"unusable": f"signal {-code} ended it"}
        said = (scratch / "said.txt").read_text(errors="replace").strip().splitlines()
        ended = f"signal {-code} ended it" if code < 0 else f"it ended with status {code}"
        return {"fault": f"{ended}{f': {said[-1][:300]}' if said else ''}"}
    if "outputs" in answer:
        answer["outputs"] = [[str(scratch / name) for name in names] for names in answer["outputs"]]
    return answer


def told(observation: Observation, ran: Mapping[int, Ran], device: Device) -> Observation:
    """An observation with what became of its calls on the GPU."""

    def with_outputs(numbers: Numbers, found: Ran) -> Numbers:
        outputs, draw = found.outputs.get(numbers.inputs, ((), ()))
        return replace(numbers, on_gpu=outputs, draw_on_gpu=draw)

    calls = []
    for call in observation.calls:
        found = ran.get(call.number, Ran({}))
        numbers = tuple(with_outputs(n, found) for n in call.numbers)
        calls.append(replace(call, numbers=numbers, gpu_fault=found.fault, gpu_seconds=found.seconds))
    name = f"{device.name} ({device.arch})"
    return replace(observation, calls=tuple(calls), device=name if ran else observation.device)


def _is_there() -> bool:
    """Whether the driver shows a GPU, on Linux by itself or under Windows."""
    return os.path.exists("/dev/nvidia0") or os.path.exists("/dev/dxg")


def _environment(platform: str) -> dict[str, str]:
    # The program's own process, or another user's, may want memory of the GPU's, too.
    own = {"JAX_PLATFORMS": platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}
