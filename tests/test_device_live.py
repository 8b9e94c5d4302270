"""Running kernels on a GPU. Where there is none, its process runs on the CPU, or its answers are made up."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from mgpu_fix.catalogue import load
from mgpu_fix.commands import carried_out
from mgpu_fix.levels import VerifiedBy
from mgpu_fix.model import FileReport, Report
from mgpu_fix.observe import Observer, ObserverError, Program, machine
from mgpu_fix.observe.device import Device
from mgpu_fix.problems import Options
from mgpu_fix.repair import Task, carry_out

pytestmark = pytest.mark.live

KERNELS = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

F = jax.ShapeDtypeStruct((128,), jnp.float32)


def twice(x_ref, o_ref):
    return x_ref[...] * 2


def healthy(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


x = jnp.linspace(-1.0, 1.0, 128)
plgpu.kernel(twice, out_type=F)(x)
plgpu.kernel(healthy, out_type=F)(x)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    import jax

    path = tmp_path / "kernels.py"
    old = tuple(map(int, jax.__version__.split(".")[:2])) < (0, 11)
    path.write_text(KERNELS.replace("out_type", "out_shape") if old else KERNELS)
    return path


# ---------------------------------------------------------------------- the process


def exported(folder: Path, function: Callable[..., Any], *operands: np.ndarray) -> Path:
    import jax
    from jax import export

    path = folder / "function.exported"
    path.write_bytes(export.export(jax.jit(function), platforms=("cpu",))(*operands).serialize())
    return path


def file(folder: Path, name: str, array: np.ndarray) -> str:
    path = folder / f"{name}.{array.dtype.name}.npy"
    np.save(path, array.view("u2") if array.dtype.name == "bfloat16" else array)
    return str(path)


def test_the_process_runs_what_it_is_given(tmp_path: Path) -> None:
    import jax.numpy as jnp
    import ml_dtypes

    x, y = (np.arange(8, dtype=ml_dtypes.bfloat16) + n for n in (0, 3))
    path = exported(tmp_path, lambda a: (a * 2, jnp.sum(a.astype(jnp.float32))), x)
    cpu = Device(tmp_path, sys.executable, "cpu")
    answer = cpu._work(path, [[file(tmp_path, "x", x)], [file(tmp_path, "y", y)]], 60)
    assert answer["arch"] == "cpu"
    from mgpu_fix.arrays import load

    for files, operand in zip(answer["outputs"], (x, y), strict=True):
        twice, total = (load(Path(f)) for f in files)
        assert twice.dtype == x.dtype and (twice == operand * 2).all()
        assert total == operand.astype(np.float32).sum()


def test_the_process_times_what_it_runs(tmp_path: Path) -> None:
    import jax

    x = np.arange(4, dtype=np.float32)
    slow = exported(tmp_path, lambda a: jax.lax.fori_loop(0, 2_000_000, lambda i, v: v * 0.999 + i, a), x)
    cpu = Device(tmp_path, sys.executable, "cpu")
    operands = [[file(tmp_path, "x", x)]]
    assert "seconds" not in cpu._work(slow, operands, 60)
    cpu.timed = True
    longer = cpu._work(slow, operands, 60)
    shorter = cpu._work(exported(tmp_path, lambda a: a + 1, x), operands, 60)
    assert len(longer["outputs"]) == 1
    assert 0 < shorter["seconds"] < longer["seconds"] < 60


def test_a_control_that_copies_lets_it_be_used(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    cpu = Device(tmp_path, sys.executable, "cpu")
    cpu.find(lambda: (exported(tmp_path, lambda a: a, x), Path(file(tmp_path, "x", x))))
    assert cpu.arch == "cpu" and cpu.name


def test_other_operands_than_it_was_exported_for_are_no_fault_of_the_kernel(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    path = exported(tmp_path, lambda a: a, x)
    answer = Device(tmp_path, sys.executable, "cpu")._work(path, [[file(tmp_path, "y", x[:3].copy())]], 60)
    assert answer == {"unusable": "it takes other operands than it was given"}


def test_a_kernel_that_never_ends_is_a_fault(tmp_path: Path) -> None:
    import jax

    x = np.arange(4, dtype=np.float32)
    path = exported(tmp_path, lambda a: jax.lax.while_loop(lambda v: v[0] < 1, lambda v: v - 1, a), x)
    answer = Device(tmp_path, sys.executable, "cpu")._work(path, [[file(tmp_path, "x", x)]], 8)
    assert answer == {"fault": "it does not come to its end within 8 s"}


# ---------------------------------------------------------------------- the loop


class MadeUp(Device):
    """A Hopper GPU whose numbers ``compute`` makes; keeps the shapes of what it was asked to run."""

    compute: Callable[[np.ndarray], np.ndarray]
    ran: list[list[tuple[int, ...]]]

    def find(self, control: Callable[[], tuple[Path, Path]]) -> None:
        self.name, self.arch = "H100", "sm_90a"

    def _work(self, exported: Path, sets: Any, seconds: float) -> dict[str, Any]:
        from jax import export

        kernel = export.deserialize(bytearray(exported.read_bytes()))
        assert kernel.platforms == ("cuda",)
        assert "mosaic_gpu" in kernel.mlir_module()
        self.ran.append([aval.shape for aval in kernel.in_avals])
        outputs = []
        for i, [operand] in enumerate(sets):
            result = type(self).compute(np.load(operand))
            if isinstance(result, str):
                return {"name": self.name, "arch": "9.0", "outputs": [], "fault": result}
            outputs.append([file(exported.parent, f"gpu{i}", result)])
        return {"name": self.name, "arch": "9.0", "outputs": outputs}


Repair = Callable[..., tuple[Report, FileReport]]


@pytest.fixture
def repair(script: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repair]:
    def run(compute: Callable[[np.ndarray], Any], require: VerifiedBy = VerifiedBy.LOWERED) -> Any:
        made_up = type("MadeUp", (MadeUp,), {"compute": staticmethod(compute), "ran": []})
        monkeypatch.setattr(machine, "Device", made_up)
        task = Task((str(script),), options=Options(require=require), program=Program("", device="gpu"))
        with Observer() as observer:
            report = carry_out(task, observer, load(), lambda text: None)
        # The kernel that failed, once, and no other.
        assert made_up.ran == [[(128,)]]
        return report, report.files[0]

    yield run


def test_a_fix_whose_numbers_the_gpu_confirms_is_proven_by_it(repair: Repair, script: Path) -> None:
    report, done = repair(lambda x: x * 2, VerifiedBy.GPU)
    assert (done.status, report.device) == ("fixed", "H100 (sm_90a)")
    assert [fix.verified_by for fix in done.fixes] == [VerifiedBy.GPU]
    assert {k.name: k.verified_by for k in done.kernels} == {"twice": VerifiedBy.GPU, "healthy": VerifiedBy.LOWERED}
    assert "return" not in script.read_text()


@pytest.mark.parametrize(
    ("compute", "why"),
    [
        (lambda x: x * 3, "twice computes something else on the GPU: "),
        (lambda x: np.where(np.arange(128) == 5, 7, x * 2).astype(np.float32), "1 of 128 elements differ"),
        (lambda x: "an illegal memory access was encountered", "twice fails on the GPU: an illegal memory access"),
    ],
)
def test_a_fix_that_fails_on_the_gpu_is_not_written(
    repair: Repair, script: Path, compute: Callable[[np.ndarray], Any], why: str
) -> None:
    before = script.read_bytes()
    _, left = repair(compute)
    assert left.status == "unfixed" and script.read_bytes() == before
    assert any(why in item.reason for item in left.remaining), left.remaining


WARPS = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = x_ref[...] + 1


x = jnp.linspace(-1.0, 1.0, 128)
plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))(x)
"""


@pytest.mark.parametrize(("prefer", "hoist", "loops"), [("", 1, True), ("fastest", 1, False), ("fastest", 9, True)])
def test_the_fix_that_the_gpu_is_done_with_first_is_written(
    script: Path, monkeypatch: pytest.MonkeyPatch, prefer: str, hoist: float, loops: bool
) -> None:
    import jax

    if tuple(map(int, jax.__version__.split(".")[:2])) < (0, 11):
        pytest.skip("this JAX interprets no warp-level regions")

    class Clocked(MadeUp):
        ran: ClassVar = []

        @staticmethod
        def compute(operand: np.ndarray) -> np.ndarray:
            return operand + 1

        def _work(self, exported: Path, sets: Any, seconds: float) -> dict[str, Any]:
            answer = super()._work(exported, sets, seconds)
            # A loop over elements takes ``scf.for``.
            module = next(exported.parent.glob("*.module")).read_bytes()
            takes = {"seconds": 3e-6 if b"scf.for" in module else hoist * 1e-6}
            return answer | takes if self.timed else answer

    monkeypatch.setattr(machine, "Device", Clocked)
    script.write_text(WARPS)
    task = Task((str(script),), options=Options(prefer=prefer), program=Program("", device="gpu"))
    with Observer() as observer:
        report = carried_out([task], observer)
    [fixed] = report.files
    assert fixed.status == "fixed", fixed
    assert ("fori_loop" in script.read_text() or "pl.loop" in script.read_text()) is loops
    times = [kernel.gpu_seconds for kernel in fixed.kernels]
    assert times == ([3e-6 if loops else hoist * 1e-6] if prefer else [None])


def test_without_a_gpu_nothing_is_timed_and_that_is_said(script: Path) -> None:
    command = [sys.executable, "-m", "mgpu_fix", "apply", "--device", "cpu", "--prefer", "fastest", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == "mgpu-fix: --prefer fastest: nothing is timed, since --device cpu says so\n"
    assert done.returncode == 0 and "1 fixed" in done.stdout


def test_asking_for_a_gpu_where_there_is_none_is_an_error(observer: Observer, script: Path) -> None:
    if observer.machine.gpu:
        pytest.skip("there is one")
    with pytest.raises(ObserverError, match="kernels cannot run on a GPU here: there is no NVIDIA GPU here"):
        observer.observe(Program(str(script), device="gpu"))
    assert observer.observe(Program(str(script), device="auto")).device == "described sm_90a"


def test_the_control_is_a_kernel_that_can_be_carried_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax import export

    controls: list[tuple[bytes, np.ndarray]] = []

    class Controlled(MadeUp):
        def find(self, control: Callable[[], tuple[Path, Path]]) -> None:
            exported, operand = control()
            controls.append((exported.read_bytes(), np.load(operand)))
            super().find(control)

    monkeypatch.setattr(machine, "Device", Controlled)
    # Nothing was asked of it before.
    with Observer() as fresh:
        assert (fresh.machine.gpu, fresh.machine.unable_to_run()) == ("H100 (sm_90a)", "")
    [(data, operand)] = controls
    kernel = export.deserialize(bytearray(data))
    assert kernel.platforms == ("cuda",) and "mosaic_gpu" in kernel.mlir_module()
    assert [(a.shape, a.dtype) for a in kernel.in_avals] == [(operand.shape, operand.dtype)]
    assert len({*operand.tolist()}) == operand.size


@pytest.mark.parametrize(("device", "why"), [("cpu", "--device cpu says so"), ("auto", "there is no NVIDIA GPU here")])
def test_a_proof_that_cannot_be_had_is_not_asked_for(observer: Observer, script: Path, device: str, why: str) -> None:
    if device == "auto" and observer.machine.gpu:
        pytest.skip("there is one")
    command = [sys.executable, "-m", "mgpu_fix", "apply", "--device", device, "--require", "gpu", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"mgpu-fix: --require gpu: no kernel runs on a GPU here, since {why}\n"
    assert (done.returncode, done.stderr, done.stdout) == (2, said, "")


# ---------------------------------------------------------------------- a real one


@pytest.mark.gpu
def test_a_real_gpu_proves_a_fix(observer: Observer, script: Path) -> None:
    if not observer.machine.gpu:
        pytest.skip(observer.machine.unable_to_run())
    command = [sys.executable, "-m", "mgpu_fix", "apply", "--device", "gpu", "--require", "gpu"]
    done = subprocess.run([*command, "--output-format", "json", str(script)], capture_output=True, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["device"] == observer.machine.gpu
    assert [fix["verified_by"] for fix in report["files"][0]["fixes"]] == ["gpu"]
