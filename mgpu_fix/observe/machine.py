"""What this machine makes of lowered kernels: machine code, and numbers on its GPU. Each is tried on a kernel that is
right before it says anything of another. Imports no JAX."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mgpu_fix.model import Observation
from mgpu_fix.observe import device
from mgpu_fix.observe.compiler import DRIVER, EXTRA, Compiled, Compiler, Lowered, MissingError, Module, told
from mgpu_fix.observe.device import Device, Exported

#: a kernel that compiles wherever anything does, and copies its operand
CONTROL = """
import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]

x = jax.ShapeDtypeStruct((128,), "float32")
jax.jit(plgpu.kernel(copy, out_type=x)).trace(x)
"""


class Host(Protocol):
    """Whoever runs programs here."""

    @property
    def python(self) -> str:
        """The Python that runs them."""
        ...

    @property
    def folder(self) -> str:
        """A private folder."""
        ...

    @property
    def jax(self) -> str:
        """Version of the JAX that runs them."""
        ...

    def lowered(self, code: str, folder: str, export: bool) -> None:
        """Run ``code``, and leave what its kernels are lowered to in ``folder``."""
        ...


@dataclass(frozen=True)
class Wanted:
    """What is asked of a program's kernels: to be compiled for ``arch``, where that is not empty, and to run on a GPU
    at all (``cpu``, ``gpu``, ``auto``), and to be ``timed`` there; ``seconds`` bounds each of both."""

    arch: str
    device: str
    seconds: float
    timed: bool = False


class Machine:
    """The compiler and the GPU here, each None until it is needed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._device: Device | None = None
        self._no_device = ""
        self._compiler: Compiler | None = None
        #: by GPU, why kernels cannot be compiled for it, empty where they can
        self._unable: dict[str, str] = {}
        #: what the kernels of a program are lowered to as it stands
        self._standing: frozenset[str] | None = None

    def forget(self) -> None:
        """Another program comes."""
        self._standing = None

    @property
    def knows_program(self) -> bool:
        """Whether the program was seen as it stands. There a kernel fails, or nobody asks what it computes."""
        return self._standing is not None

    # ------------------------------------------------------------------ the GPU

    def unable_to_run(self) -> str:
        """Why no kernel can be run on a GPU here, and what to do; empty where one can. It is tried."""
        if self._device is None and not self._no_device:
            found = Device(Path(self._host.folder), self._host.python)
            try:
                found.find(self._exported_control)
                self._device = found
            except (MissingError, OSError) as e:
                self._no_device = str(e) or "no kernel runs on it"
        return self._no_device

    @property
    def gpu(self) -> str:
        """Name of the GPU that kernels can run on, empty where there is none."""
        return "" if self.unable_to_run() or self._device is None else f"{self._device.name} ({self._device.arch})"

    def gpu_for(self, wanted: Wanted) -> Device | None:
        """Where a program's kernels are to run. Raises MissingError where that is asked for and cannot be."""
        if wanted.device == "cpu":
            return None
        why = self.unable_to_run()
        if not why and self._device and wanted.arch not in ("", self._device.arch):
            why = f"it is {self._device.arch}, and --arch says {wanted.arch}"
        if why and wanted.device == "gpu":
            raise MissingError(f"kernels cannot run on a GPU here: {why}")
        return None if why else self._device

    def ran(
        self,
        observation: Observation,
        lowered: Mapping[int, Lowered],
        exported: Sequence[Exported],
        gpu: Device,
        wanted: Wanted,
    ) -> Observation:
        """An observation with what became of those of its kernels on ``gpu`` that are not as they were at first."""
        names = frozenset(name for kernel in lowered.values() for name in kernel.names)
        self._standing = names if self._standing is None else self._standing
        changed = [call for call in exported if not self._standing.issuperset(call.modules)]
        gpu.timed = wanted.timed
        return device.told(observation, gpu.run(changed, Path(observation.folder), wanted.seconds), gpu)

    def _exported_control(self) -> tuple[Path, Path]:
        """A kernel that copies its operand, and the operand. Raises MissingError, and what the host raises."""
        folder = self._control("exported", export=True)
        (folder / "operand.float32.npy").write_bytes(_ramp(128))
        exported = next(folder.glob("*.exported"), None)
        if exported is None:
            raise MissingError(f"JAX exports no kernel; {device.EXTRA}")
        return exported, folder / "operand.float32.npy"

    # ------------------------------------------------------------------ compiling

    def unable_to_compile(self, arch: str) -> str:
        """Why kernels cannot be compiled for ``arch`` here, and what to do; empty if they can. It is tried."""
        if arch not in self._unable:
            compiler = self._its_compiler()
            try:
                compiler.find()
                modules = [Module(path, path.stem) for path in self._control("control").glob("*.module")]
                self._unable[arch] = _fault(compiler.compile(modules, arch, 60))
            except (MissingError, OSError) as e:
                self._unable[arch] = str(e)
        return self._unable[arch]

    def may_compile(self, arch: str) -> bool:
        """Whether the parts for it are there and were not found wanting."""
        if arch not in self._unable:
            try:
                self._its_compiler().find()
            except (MissingError, OSError) as e:
                self._unable[arch] = str(e)
        return not self._unable.get(arch)

    def compiled(self, observation: Observation, lowered: Mapping[int, Lowered], wanted: Wanted) -> Observation:
        """An observation with what became of its kernels when they were compiled, where that can be done."""
        names = dict.fromkeys(name for kernel in lowered.values() for name in kernel.names)
        modules = [Module(Path(observation.folder, f"{name}.module"), name) for name in names]
        try:
            compiled = self._its_compiler().compile(modules, wanted.arch, wanted.seconds)
        except OSError:
            return observation
        # What is missing here must not be held against a kernel.
        blamed = {n: c for n, c in compiled.items() if c.resources or not self._is_unable(c.arch)}
        return told(observation, lowered, blamed)

    def _is_unable(self, arch: str) -> bool:
        return not self._its_compiler().has_compiled(arch) and bool(self.unable_to_compile(arch))

    def _its_compiler(self) -> Compiler:
        if self._compiler is None:
            self._compiler = Compiler(Path(self._host.folder), self._host.jax)
        return self._compiler

    def _control(self, name: str, export: bool = False) -> Path:
        """A folder that holds a kernel which is right, lowered."""
        folder = Path(self._host.folder, name)
        if not folder.exists():
            folder.mkdir()
            self._host.lowered(CONTROL, str(folder), export)
        return folder


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
