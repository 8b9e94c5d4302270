"""Running kernels on a GPU: what its processes say, and what is made of it. Needs no GPU and no JAX."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgpu_fix.account import level_of
from mgpu_fix.levels import Oracle, VerifiedBy
from mgpu_fix.model import KernelCall, Numbers, Observation
from mgpu_fix.observe import device
from mgpu_fix.observe.compiler import MissingError
from mgpu_fix.observe.device import Device, Exported, Given, Ran, told
from mgpu_fix.verify import CallVerdict, compare_files, judge

FLOATS = np.linspace(-3, 3, 128, dtype=np.float32)


def save(folder: Path, name: str, array: np.ndarray) -> str:
    np.save(folder / name, array)
    return name


def control(folder: Path) -> tuple[Path, Path]:
    return folder / "control.exported", folder / save(folder, "operand.float32.npy", FLOATS)


class Answering(Device):
    """A GPU whose worker gives answers that were written down."""

    def __init__(self, folder: Path, *answers: dict[str, Any]) -> None:
        super().__init__(folder, sys.executable, "test")
        self.answers, self.asked = [*answers], 0
        self.arch = "sm_90a"

    def _work(self, exported: Path, sets: Any, seconds: float) -> dict[str, Any]:
        self.asked += 1
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"unusable": "RuntimeError: no driver"}, "no driver"),
        ({"name": "H100", "arch": "9.0", "outputs": [], "fault": "illegal instruction"}, "illegal instruction"),
        ({"name": "H100", "arch": "9.0", "outputs": [["wrong.npy"]]}, "gives another one"),
    ],
)
def test_a_gpu_is_used_only_if_a_kernel_that_is_right_gives_the_right_numbers(
    tmp_path: Path, answer: dict[str, Any], why: str
) -> None:
    save(tmp_path, "wrong.npy", FLOATS + 1)
    if "outputs" in answer:
        answer["outputs"] = [[str(tmp_path / name) for name in names] for names in answer["outputs"]]
    with pytest.raises(MissingError, match=why):
        Answering(tmp_path, answer).find(lambda: control(tmp_path))


def test_a_gpu_that_mosaic_does_not_know_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_is_there", lambda: True)
    copy = str(tmp_path / "operand.float32.npy")
    for arch, known in (("8.0", False), ("9.0", True), ("10.0", True)):
        gpu = Answering(tmp_path, {"name": "GPU", "arch": arch, "outputs": [[copy]]})
        gpu.platform = "cuda"
        if known:
            gpu.find(lambda: control(tmp_path))
            assert (gpu.name, gpu.arch) == ("GPU", {"9.0": "sm_90a", "10.0": "sm_100a"}[arch])
        else:
            with pytest.raises(MissingError, match=r"compute capability 8\.0"):
                gpu.find(lambda: control(tmp_path))


def test_without_a_gpu_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_is_there", lambda: False)
    gpu = Answering(tmp_path)
    gpu.platform = "cuda"
    with pytest.raises(MissingError, match="no NVIDIA GPU"):
        gpu.find(lambda: control(tmp_path))


def test_kernels_for_another_gpu_do_not_run(tmp_path: Path) -> None:
    hopper, blackwell, both = (tmp_path / f"{name}.module" for name in ("h", "b", "x"))
    hopper.write_bytes(b"nvvm.wgmma.mma_async")
    blackwell.write_bytes(b"tcgen05.mma")
    both.write_bytes(b"arith.addf")
    gpu = Device(tmp_path, sys.executable)
    gpu.arch = "sm_90a"
    assert gpu.suits([hopper, both]) and not gpu.suits([both, blackwell])
    gpu.arch = "sm_100a"
    assert gpu.suits([blackwell, both]) and not gpu.suits([hopper])


CALL = Exported(0, "0.exported", ("m",), (Given("in", ("a.npy",), ("d.npy",)), Given("other", ("b.npy",))))


def test_outputs_come_back_to_the_operands_that_they_are_of(tmp_path: Path) -> None:
    (tmp_path / "m.module").write_bytes(b"")
    gpu = Answering(tmp_path, {"name": "H100", "arch": "9.0", "outputs": [["1"], ["2"], ["3"]]})
    ran = gpu.run([CALL], tmp_path, 10)
    assert ran == {0: Ran({"in": (("1",), ("2",)), "other": (("3",), ())})}
    # The same kernel of another text, on the same operands.
    again = replace(CALL, number=4, file="4.exported")
    assert gpu.run([again], tmp_path, 10) == {4: ran[0]} and gpu.asked == 1


def test_a_kernel_is_timed_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "m.module").write_bytes(b"")
    answer = {"name": "H100", "arch": "9.0", "outputs": [["1"], ["2"], ["3"]]}
    gpu = Answering(tmp_path, answer, {**answer, "seconds": 2e-6})
    assert gpu.run([CALL], tmp_path, 10)[0].seconds is None
    gpu.timed = True
    ran = gpu.run([CALL], tmp_path, 10)
    assert (ran[0].seconds, gpu.asked) == (2e-6, 2)
    seen = Observation("ok", (call(Numbers("known", "in", ("o",))),))
    assert told(seen, ran, gpu).calls[0].gpu_seconds == 2e-6


def test_a_fault_is_the_kernels_and_what_is_missing_is_not(tmp_path: Path) -> None:
    (tmp_path / "m.module").write_bytes(b"")
    fault = {"name": "H100", "arch": "9.0", "outputs": [], "fault": "illegal memory access"}
    assert Answering(tmp_path, fault).run([CALL], tmp_path, 10) == {0: Ran({}, "illegal memory access")}
    assert Answering(tmp_path, {"unusable": "no memory"}).run([CALL], tmp_path, 10) == {0: Ran({})}


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("print('hello'); print('{\"outputs\": [[\"o\"]]}')", {"outputs": [["SCRATCH/o"]]}),
        ("import os, sys; sys.stderr.write('CUDA error\\n'); os.abort()", {"fault": "signal 6 ended it: CUDA error"}),
        ("import os; os._exit(3)", {"fault": "it ended with status 3"}),
        ("import os; os.kill(os.getpid(), 9)", {"unusable": "signal 9 ended it"}),
        ("import time; time.sleep(60)", {"fault": "it does not come to its end within 1 s"}),
        # What it computed is known, only not how long it takes.
        ('import time; print(\'{"outputs": [["o"]]}\', flush=True); time.sleep(60)', {"outputs": [["SCRATCH/o"]]}),
        ('import os; print(\'{"outputs": [["o"]]}\', flush=True); os.abort()', {"outputs": [["SCRATCH/o"]]}),
    ],
)
def test_how_the_process_of_a_kernel_ends_is_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, answer: dict[str, Any]
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(script)
    monkeypatch.setattr(device.start, "__file__", str(worker))
    got = Device(tmp_path, sys.executable)._work(tmp_path / "e", [["a"]], 1 if "sleep" in script else 60)
    scratch = next(p for p in tmp_path.glob("gpu-*"))
    assert got == json.loads(json.dumps(answer).replace("SCRATCH", str(scratch)))


def call(*numbers: Numbers, **fields: Any) -> KernelCall:
    return KernelCall("k", "plgpu.kernel", None, ("f32[128]",), ("f32[128]",), "run", numbers, **fields)


def test_an_observation_says_what_the_gpu_computed(tmp_path: Path) -> None:
    gpu = Answering(tmp_path)
    gpu.name = "H100"
    seen = Observation("ok", (call(Numbers("known", "in", ("o",))),), device="described sm_90a")
    got = told(seen, {0: Ran({"in": (("g",), ("h",))})}, gpu)
    assert got.calls[0].numbers[0] == Numbers("known", "in", ("o",), on_gpu=("g",), draw_on_gpu=("h",))
    assert got.device == "H100 (sm_90a)"
    assert told(seen, {0: Ran({}, "boom")}, gpu).calls[0].gpu_fault == "boom"
    assert told(seen, {}, gpu) == seen


def runs(folder: Path, gpu: np.ndarray, state: str = "known", here: np.ndarray = FLOATS) -> CallVerdict:
    """The verdict on a kernel whose numbers were FLOATS, and that the interpreter and a GPU then give others for."""
    true, mine = (save(folder, f"{n}.float32.npy", a) for n, a in (("true", FLOATS), ("mine", here)))
    theirs = save(folder, "gpu.float32.npy", gpu)
    outputs = (mine,) if state == "known" else ()
    before = Observation("ok", (call(Numbers("known", "in", (true,))),), folder=str(folder))
    after = Observation("ok", (call(Numbers(state, "in", outputs, on_gpu=(theirs,))),), folder=str(folder))
    [verdict] = judge(before, after, compare_files)
    return verdict


def test_numbers_of_the_gpu_confirm_those_of_the_interpreter(tmp_path: Path) -> None:
    right = runs(tmp_path, FLOATS * np.float32(1.001))
    assert right.agrees and right.on_gpu
    assert level_of(right, call()) is VerifiedBy.GPU
    assert level_of(replace(right, oracle=Oracle.GOLDEN), call()) is VerifiedBy.GOLDEN
    assert level_of(replace(right, on_gpu=False), call()) is VerifiedBy.INTERPRETER


def test_other_numbers_on_the_gpu_are_a_refusal(tmp_path: Path) -> None:
    shifted = FLOATS.copy()
    shifted[7] += 1
    for gpu in (shifted, FLOATS[::-1].copy(), np.zeros_like(FLOATS), np.full_like(FLOATS, np.nan)):
        wrong = runs(tmp_path, gpu)
        assert wrong.agrees is False and "something else on the GPU" in wrong.lost
    # The GPU does not make good what the interpreter contradicts.
    assert runs(tmp_path, FLOATS, here=shifted).agrees is False


def test_where_only_the_gpu_has_numbers_they_are_held_to_the_usual_tolerance(tmp_path: Path) -> None:
    assert runs(tmp_path, FLOATS, "unknown").on_gpu
    assert runs(tmp_path, FLOATS * np.float32(1.001), "unknown").agrees is False
