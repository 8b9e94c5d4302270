"""Kernels compiled for real, where JAX's CUDA plugin is installed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mgpu_fix.model import KernelCall, Observation
from mgpu_fix.observe import Observer, Program, compiler

pytestmark = pytest.mark.live

HEAD = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

x = jnp.arange(128 * 128, dtype=jnp.float32).reshape(128, 128)
"""
WGMMA = """
@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
    scratch_types=[plgpu.ACC((64, 128), jnp.float32), plgpu.SMEM((64, 64), jnp.float16, transforms=(
        plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))), plgpu.SMEM((64, 128), jnp.float16, transforms=(
        plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)))],
)
def matmul(o_ref, acc, a, b):
    plgpu.wgmma(acc, a, b)
    o_ref[...] = acc[...]
matmul()
"""
TENSOR_MEMORY = """
@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
    scratch_types=[plgpu.TMEM((128, 128), jnp.float32)],
)
def through(o_ref, t):
    plgpu.async_store_tmem(t, plgpu.layout_cast(jnp.zeros((128, 128), jnp.float32), plgpu.Layout.TCGEN05))
    plgpu.commit_tmem()
    o_ref[...] = plgpu.async_load_tmem(t)
through()
"""
SINE = """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32))
def sine(x_ref, o_ref):
    return jnp.sin(x_ref[...])
sine(x)
"""
DOUBLE = """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32))
def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2
double(x)
"""


@pytest.fixture(autouse=True)
def able(observer: Observer) -> None:
    for arch in ("sm_90a", "sm_100a"):
        if why := observer.machine.unable_to_compile(arch):
            pytest.skip(why)


def observe(observer: Observer, folder: Path, text: str, arch: str = "") -> Observation:
    script = folder / "program.py"
    script.write_text(HEAD + text)
    return observer.observe(Program(str(script), arch=arch))


def compiled(observer: Observer, folder: Path, text: str, arch: str = "") -> KernelCall:
    seen = observe(observer, folder, text, arch)
    [call] = seen.calls
    assert call.resources is not None, (seen.failures, call.uncompiled)
    return call


def fix(script: Path, *options: str, **env: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "mgpu_fix", "apply", "--output-format", "json", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})
    return done.returncode, json.loads(done.stdout)["files"][0]


def test_a_kernel_is_compiled_for_the_gpu_that_its_instructions_need(observer: Observer, tmp_path: Path) -> None:
    for text, arch in ((DOUBLE, "sm_90a"), (WGMMA, "sm_90a"), (TENSOR_MEMORY, "sm_100a")):
        call = compiled(observer, tmp_path, text)
        assert call.resources is not None and call.resources.arch == arch
        assert 8 < call.resources.registers < 256
    assert compiled(observer, tmp_path, DOUBLE, "sm_100a").resources.arch == "sm_100a"  # type: ignore[union-attr]


def test_shared_memory_is_what_the_kernel_asks_for(observer: Observer, tmp_path: Path) -> None:
    takes = compiled(observer, tmp_path, WGMMA).resources
    assert takes is not None and takes.shared_bytes >= 2 * (64 * 64 + 64 * 128)


@pytest.mark.parametrize(("text", "arch", "word"), [(WGMMA, "sm_100a", "wgmma"), (TENSOR_MEMORY, "sm_90a", "tcgen05")])
def test_the_wrong_gpu_is_a_failure_in_the_compilers_words_at_its_place(
    observer: Observer, tmp_path: Path, text: str, arch: str, word: str
) -> None:
    seen = observe(observer, tmp_path, text, arch)
    [failure], [call] = seen.failures, seen.calls
    assert (failure.type, failure.stage, call.stage, call.resources) == ("CompileError", "compile", "compile", None)
    assert word in failure.message and failure.message.endswith(f"(compiling for {arch})")
    assert failure.span is not None and failure.span.path == str(tmp_path / "program.py")
    assert seen.status == "ok"


def test_a_compile_error_that_the_program_expects_is_told_as_caught(observer: Observer, tmp_path: Path) -> None:
    declared, call = TENSOR_MEMORY.rsplit("\n", 2)[0], "through()"
    expects = f"{declared}\ntry:\n    {call}\nexcept RuntimeError:\n    pass\n"
    assert [f.caught for f in observe(observer, tmp_path, expects, "sm_90a").failures] == [True]
    assert [f.caught for f in observe(observer, tmp_path, f"{expects}{call}\n", "sm_90a").failures] == [False]


def test_a_fix_whose_kernel_spills_says_so(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(HEAD + SINE)
    code, report = fix(script)
    assert (code, report["status"]) == (0, "fixed")
    [fixed], [kernel] = report["fixes"], report["kernels"]
    assert kernel["resources"]["spill_bytes"] > 0
    assert f"it spills {kernel['resources']['spill_bytes']} bytes of registers to memory" in fixed["cost"]


def test_a_fix_whose_kernel_does_not_compile_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    # Dropped by JAX without an error, so that it is a fix of ours that makes the kernel what cannot be compiled.
    script.write_text(before := HEAD + WGMMA.replace("    o_ref[...] = acc[...]", "    return acc[...]"))
    code, report = fix(script, "--arch", "sm_100a")
    assert (code, report["status"]) == (1, "unfixed")
    assert script.read_text() == before
    assert any("CompileError" in item["reason"] for item in report["remaining"])
    assert fix(script)[0] == 0


def test_required_to_compile(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(HEAD + SINE)
    code, report = fix(script, "--require", "compiled")
    assert (code, report["status"]) == (0, "fixed")


def test_beside_a_driver_the_stand_in_is_not_used(observer: Observer, tmp_path: Path) -> None:
    stub = compiler._stub(tmp_path)
    (tmp_path / "libcuda.so.1").symlink_to(stub)
    script = tmp_path / "program.py"
    script.write_text(HEAD + SINE)
    code, report = fix(script, LD_LIBRARY_PATH=str(tmp_path))
    assert (code, report["kernels"][0]["resources"]) == (0, None)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    doctor = [sys.executable, "-m", "mgpu_fix", "doctor"]
    told = subprocess.run(doctor, capture_output=True, text=True, check=True, env=environment)
    assert f"compiled  no: {compiler.DRIVER}\n" in told.stdout


def test_a_compiler_that_lacks_a_part_is_no_fault_of_the_kernels(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(HEAD + SINE)
    # A plugin of another JAX, or one without its assembler, ends in the same way.
    (tmp_path / "sitecustomize.py").write_text(
        "from mgpu_fix.observe import compiler\n"
        "def words(arch, code, out, said):\n"
        "    return compiler.Compiled(arch, refusal='LLVM ERROR: no libdevice')\n"
        "compiler.read = words\n"
    )
    code, report = fix(script, PYTHONPATH=str(tmp_path))
    assert (code, report["status"], report["kernels"][0]["resources"]) == (0, "fixed", None)
    assert report["kernels"][0]["note"] == ""


def test_killed_while_it_compiles_the_file_is_whole_and_the_compile_ends(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(HEAD + SINE)
    before = script.read_bytes()
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib\n"
        "from mgpu_fix.observe import compiler\n"
        f"compiler._WORKER = pathlib.Path({str(tmp_path / 'worker.py')!r})\n"
    )
    (tmp_path / "worker.py").write_text(
        "import os, pathlib, signal, sys, time\n"
        "signal.alarm(int(sys.argv[4]) // 20)\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "mgpu_fix", "apply", "--timeout", "60", str(script)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    _until(lambda: pid.exists() and pid.read_text() != "")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert script.read_bytes() == before
    _until(
        lambda: (
            not Path(f"/proc/{pid.read_text()}").exists() or " Z " in Path(f"/proc/{pid.read_text()}/stat").read_text()
        )
    )


def _until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
