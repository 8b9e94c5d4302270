"""``pytest --mgpu-fix``, in sessions of their own."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewriter

import mgpu_fix

KERNELS = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

OUT = jax.ShapeDtypeStruct((128,), jnp.float32)


def double(x_ref, o_ref):
    return x_ref[...] * 2  # twice


kernel = pl.kernel(double, out_type=OUT, mesh=plgpu.Mesh())
"""
FIXED = KERNELS.replace("return x_ref", "o_ref[...] = x_ref")
TESTS = """\
import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from kernels import OUT, kernel


def lower(f):
    jax.jit(f).trace(jnp.arange(128, dtype=jnp.float32)).lower(lowering_platforms=("cuda",))


def test_double(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lower(kernel)


@pytest.mark.parametrize("n", [3, 4])
def test_renamed(n):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * n

    lower(pl.kernel(body, out_shape=OUT, mesh=plgpu.Mesh()))


def test_passes():
    with open("ran.txt", "a") as f:
        print("passing tests run once", file=f)


def test_of_something_else():
    assert OUT is None


@pytest.mark.xfail
def test_expected():
    lower(kernel)
"""


def session(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "test_kernels.py").write_text(TESTS)
    return tmp_path


def test_it_loads_nothing_unless_asked() -> None:
    code = "import sys, mgpu_fix, mgpu_fix.pytest_plugin; print([m for m in sys.modules if m.startswith('mgpu_fix.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "['mgpu_fix.pytest_plugin']\n"


def test_an_installed_plugin_is_not_rewritten() -> None:
    # pytest would warn, in each run of mgpu-fix, that the package is imported already.
    assert AssertionRewriter.is_rewrite_disabled(mgpu_fix.__doc__ or "")


@pytest.mark.live
def test_without_the_option_nothing_is_said(folder: Path) -> None:
    ran = session(folder)
    assert "4 failed, 1 passed, 1 xfailed" in ran.stdout
    assert "MGF" not in ran.stdout


@pytest.mark.live
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_failing_tests_show_proven_diffs_and_others_are_left_alone(folder: Path, workers: tuple[str, ...]) -> None:
    # What is asked for of every session is in the file, and must not reach the sessions that are run for it.
    # Nor may they, or what is done for them, meet a warning.
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --mgpu-fix --junitxml=junit.xml -W error -p no:asyncio\n")
    ran = session(folder, *workers, "test_kernels.py")
    assert "4 failed, 1 passed, 1 xfailed" in ran.stdout, ran.stdout + ran.stderr
    assert "+    o_ref[...] = x_ref[...] * 2  # twice\n" in ran.stdout
    assert "+    lower(pl.kernel(body, out_type=OUT, mesh=plgpu.Mesh()))\n" in ran.stdout
    assert "A body has no return value" in ran.stdout
    # The other parameter is told of, and not run.
    assert "It fails as test_kernels.py::test_renamed[" in ran.stdout
    assert "mgpu-fix apply --run 'python -m pytest -p no:cacheprovider" in ran.stdout
    assert ran.stdout.count("-- mgpu-fix --") == 3
    assert (folder / "kernels.py").read_text() == KERNELS
    assert (folder / "test_kernels.py").read_text() == TESTS
    assert (folder / "ran.txt").read_text() == "passing tests run once\n"

    told = {}
    for case in ET.parse(folder / "junit.xml").iter("testcase"):
        told[case.get("name")] = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert told["test_double"]["mgpu_fix.rule"] == "MGF401"
    assert told["test_double"]["mgpu_fix.status"] == "fixed"
    assert told["test_double"]["mgpu_fix.verified_by"] == "lowered"
    assert told["test_double"]["mgpu_fix.diff"].startswith("--- a/kernels.py\n+++ b/kernels.py\n")
    assert [told[f"test_renamed[{n}]"]["mgpu_fix.rule"] for n in (3, 4)] == ["MGF901", "MGF901"]
    # What was not run is not proven.
    for name in ("mgpu_fix.same_as", "mgpu_fix.verified_by"):
        assert sum(name in told[f"test_renamed[{n}]"] for n in (3, 4)) == 1
    assert told["test_passes"] == told["test_of_something_else"] == told["test_expected"] == {}


@pytest.mark.live
def test_a_file_that_does_not_load_shows_it_too(folder: Path) -> None:
    (folder / "kernels.py").write_text(FIXED.replace("out_type=OUT", "out_shape=OUT"))
    (folder / "test_other.py").write_text("def test_other():\n    pass\n")
    ran = session(folder, "--mgpu-fix")
    assert "ERROR collecting test_kernels.py" in ran.stdout
    assert "+kernel = pl.kernel(double, out_type=OUT, mesh=plgpu.Mesh())\n" in ran.stdout


@pytest.mark.live
def test_what_no_rule_mends_is_told_with_its_reason(folder: Path) -> None:
    (folder / "kernels.py").write_text(KERNELS.replace("return x_ref[...] * 2", "o_ref[...] = pl.nothing(x_ref)"))
    ran = session(folder, "--mgpu-fix", "-k", "double")
    assert "kernels.py: 1 not fixed\n  left kernels.py:10:" in ran.stdout
    assert "Nothing was written" not in ran.stdout
