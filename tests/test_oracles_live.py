"""Goldens and references of real programs, from the command line to the disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_cli import mgpu_fix
from test_running_live import reasons, report, state, write

from mgpu_fix.observe import Observer

pytestmark = pytest.mark.live

HEAD = """\
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
"""
HEALTHY = (
    HEAD
    + """\
def double(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


double(jnp.arange(128, dtype=jnp.float32))
double(jnp.ones(128, jnp.float32))
"""
)
#: fails; and the interpreter of JAX 0.10 gives no numbers of it
BROKEN = HEALTHY.replace(
    "    o_ref[...] = x_ref[...] * 2\n",
    """\
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = x_ref[...] * 2
""",
)
#: a module of a kernel, arguments and what is to come out
MODULE = (
    HEAD
    + """\
def inner(x_ref, o_ref):
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])


def kernel(x):
    return inner(x)[:64]


def example_args():
    return (jnp.zeros(128, jnp.float32),)


def reference(x):
    return np.exp(np.asarray(x, np.float64))[:64]
"""
)


def test_a_golden_outlives_a_line_shift_and_fails_on_a_changed_number(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": HEALTHY})
    assert mgpu_fix("golden", "verify", "k.py", cwd=tmp_path).returncode == 2
    ran = mgpu_fix("golden", "record", "k.py", cwd=tmp_path)
    assert (ran.returncode, "1 kernel call recorded in golden/k.npz" in ran.stdout) == (0, True), ran.stdout
    recorded = (tmp_path / "golden" / "k.npz").read_bytes()
    write(tmp_path, {"k.py": "# a comment\n\n" + HEALTHY})
    code, files = report(tmp_path, "golden", "verify", "k.py")
    assert (code, [k["verified_by"] for k in files["k.py"]["kernels"]]) == (0, ["golden"])
    write(tmp_path, {"k.py": HEALTHY.replace("* 2", "* 2 + (x_ref[...] == 77.0) * 0.5")})
    for command in (["golden", "verify"], ["check"], ["apply"]):
        code, files = report(tmp_path, *command, "k.py")
        assert code == 1
        [left] = files["k.py"]["remaining"]
        assert "1 of 128 elements differ; most at [77]: 154.5, expected 154.0 (abs 0.5, rel 0.00325" in left["message"]
    assert (tmp_path / "golden" / "k.npz").read_bytes() == recorded


def test_a_fix_is_held_against_the_golden(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": HEALTHY})
    assert mgpu_fix("golden", "record", "k.py", cwd=tmp_path).returncode == 0
    # Its kernel is called otherwise, and lies elsewhere, than when it was recorded.
    write(tmp_path, {"k.py": BROKEN})
    code, files = report(tmp_path, "apply", "k.py")
    assert code == 0, reasons(files["k.py"])
    assert [f["verified_by"] for f in files["k.py"]["fixes"]] == ["golden"]
    assert [k["oracle"] for k in files["k.py"]["kernels"]] == ["golden"]
    write(tmp_path, {"k.py": BROKEN.replace("* 2", "* 3")})
    before = state(tmp_path)
    code, files = report(tmp_path, "apply", "k.py")
    assert code == 1
    assert "double differs from its golden: 127 of 128 elements differ" in reasons(files["k.py"])
    assert state(tmp_path) == before


def test_goldens_are_renewed_only_when_that_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": HEALTHY})
    assert mgpu_fix("golden", "record", "--golden", "kept", "k.py", cwd=tmp_path).returncode == 0
    write(tmp_path, {"k.py": HEALTHY.replace("* 2", "* 3")})
    assert mgpu_fix("apply", "--golden", "kept", "k.py", cwd=tmp_path).returncode == 1
    before = (tmp_path / "kept" / "k.npz").read_bytes()
    assert mgpu_fix("apply", "--diff", "--update-golden", "--golden", "kept", "k.py", cwd=tmp_path).returncode == 0
    assert (tmp_path / "kept" / "k.npz").read_bytes() == before
    assert mgpu_fix("apply", "--update-golden", "--golden", "kept", "k.py", cwd=tmp_path).returncode == 0
    assert mgpu_fix("golden", "verify", "--golden", "kept", "k.py", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "golden").exists()


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        (BROKEN, 1, "not recorded: double fails (ValueError); mgpu-fix apply comes first"),
        (HEALTHY + "raise KeyError(1)\n", 2, "blocked: the program stops: KeyError: 1"),
        (HEALTHY.replace("    o_ref[...] =", "    _ ="), 1, "not recorded: double gives no numbers to rely on: it has"),
    ],
)
def test_what_is_not_healthy_is_not_recorded(text: str, code: int, reason: str, tmp_path: Path) -> None:
    write(tmp_path, {"k.py": text})
    before = state(tmp_path)
    ran = mgpu_fix("golden", "record", "k.py", cwd=tmp_path)
    assert ran.returncode == code
    assert reason in ran.stdout, ran.stdout
    assert state(tmp_path) == before


def test_a_spoiled_golden_blocks_and_is_left(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": BROKEN, "golden/k.npz": "no zip"})
    before = state(tmp_path)
    code, files = report(tmp_path, "apply", "k.py")
    assert (code, files["k.py"]["status"]) == (2, "blocked")
    assert "golden record makes it anew" in files["k.py"]["reason"]
    assert state(tmp_path) == before


def test_recording_that_is_killed_leaves_the_old_golden_or_the_new_one(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": HEALTHY})
    assert mgpu_fix("golden", "record", "k.py", cwd=tmp_path).returncode == 0
    path = tmp_path / "golden" / "k.npz"
    old = path.read_bytes()
    write(tmp_path, {"k.py": HEALTHY.replace("* 2", "* 3")})
    assert mgpu_fix("golden", "record", "k.py", cwd=tmp_path).returncode == 0
    new = path.read_bytes()
    for delay in (0.3, 1.5, 2.5, 3.5):
        path.write_bytes(old)
        command = [sys.executable, "-m", "mgpu_fix", "golden", "record", "k.py"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.read_bytes() in (old, new)


def test_a_modules_own_reference_proves_a_fix(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": MODULE})
    code, files = report(tmp_path, "apply", "k.py")
    assert code == 0, reasons(files["k.py"])
    [kernel] = files["k.py"]["kernels"]
    assert (kernel["name"], kernel["verified_by"], kernel["oracle"]) == ("inner", "interpreter", "reference")
    assert kernel["inputs"] == "f32[128], your data + 1 random draw"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        # Right for the arguments that the module makes, and for no others.
        ("np.cosh(np.asarray(x, np.float64))", "elements differ"),
        ("(np.exp(np.asarray(x, np.float64)) + (np.arange(128) == 5))", "1 of 64 elements differ; most at [5]: 1.0"),
    ],
)
def test_a_modules_own_reference_keeps_a_fix_out(wrong: str, why: str, tmp_path: Path) -> None:
    write(tmp_path, {"k.py": MODULE.replace("np.exp(np.asarray(x, np.float64))", wrong)})
    before = state(tmp_path)
    code, files = report(tmp_path, "apply", "k.py")
    assert code == 1
    assert "kernel differs from reference: " in reasons(files["k.py"])
    assert why in reasons(files["k.py"])
    assert state(tmp_path) == before


def test_a_reference_that_is_named_is_found_wherever_it_is(tmp_path: Path) -> None:
    truth = (
        "import numpy as np\n\n\ndef twice(x):\n    return np.asarray(x) * 2\n\n\ndef thrice(x):\n    return x * 3\n"
    )
    write(tmp_path, {"k.py": BROKEN + truth, "truth.py": truth})
    for spec in ("twice", "truth:twice", "truth.py:twice"):
        code, files = report(tmp_path, "apply", "--diff", "--reference", spec, "k.py")
        assert code == 1
        assert [k["oracle"] for k in files["k.py"]["kernels"]] == ["reference"], spec
    before = state(tmp_path)
    for spec, why in [
        ("thrice", "double differs from thrice: 127 of 128 elements differ"),
        ("twise", "--reference twise: the program defines no function 'twise'"),
        ("truth:twise", "truth defines no function 'twise'"),
        ("lies:twice", "lies does not load: ModuleNotFoundError"),
    ]:
        code, files = report(tmp_path, "apply", "--reference", spec, "k.py")
        assert code == (1 if spec == "thrice" else 2)
        assert why in reasons(files["k.py"]), spec
    assert state(tmp_path) == before
    write(tmp_path, {"k.py": HEALTHY, "truth.py": "def breaks(x):\n    raise ValueError('no')\n"})
    code, files = report(tmp_path, "check", "--reference", "truth:breaks", "k.py")
    assert code == 0
    assert [n["message"] for n in files["k.py"]["notes"]] == ["double was not held against breaks: ValueError: no"]


TWO = (
    HEALTHY
    + """
@functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def other(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def first(x):
    other(x)
    return double(x) + other(x) * 0


def itself(x):
    return double(x)


def ends(x):
    raise SystemExit(3)


def twice(x):
    return np.asarray(x) * 2
"""
)


def test_a_reference_vouches_only_for_what_comes_out_of_the_function(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": TWO})
    options = ["--call", "first", "--arg", "f32[128]"]
    code, files = report(tmp_path, "check", *options, "--reference", "twice", "k.py")
    assert (code, {k["name"]: k["oracle"] for k in files["k.py"]["kernels"]}) == (
        0,
        {"double": "reference", "other": None},
    )
    for spec, why in [("itself", "itself runs a kernel itself"), ("ends", "SystemExit: 3")]:
        code, files = report(tmp_path, "check", *options, "--reference", spec, "k.py")
        assert (code, {k["oracle"] for k in files["k.py"]["kernels"]}) == (0, {None})
        assert [n["message"] for n in files["k.py"]["notes"]] == [f"first was not held against {spec}: {why}"]


def test_a_reference_vouches_for_large_numbers_too(tmp_path: Path) -> None:
    large = "def example_args():\n    return (jnp.arange(128.0) * 1e8,)\n\n\ndef kernel(x):\n    return double(x)\n"
    write(tmp_path, {"k.py": TWO + large})
    code, files = report(tmp_path, "check", "--reference", "twice", "k.py")
    assert (code, {k["oracle"] for k in files["k.py"]["kernels"] if k["name"] == "double"}) == (0, {"reference"})


def test_a_reference_of_one_of_several_kernels_needs_its_function(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": TWO + "other(jnp.ones(128, jnp.float32))\n"})
    code, files = report(tmp_path, "check", "--reference", "twice", "k.py")
    assert code == 0
    assert "--call names the function" in files["k.py"]["notes"][0]["message"]


def test_a_wrong_reference_keeps_out_no_fix_of_another_kernel(tmp_path: Path) -> None:
    other = TWO.replace("    o_ref[...] = x_ref[...] + 1\n", "    return x_ref[...] + 1\n")
    write(tmp_path, {"k.py": other.replace("    o_ref[...] = x_ref[...] * 2\n", "    return x_ref[...] * 2\n")})
    wrong = "def wrong(x):\n    return np.asarray(x) * 3\n"
    write(tmp_path, {"k.py": (tmp_path / "k.py").read_text() + wrong + "other(jnp.ones(128, jnp.float32))\n"})
    options = ["--call", "double", "--arg", "f32[128]", "--reference", "wrong"]
    code, files = report(tmp_path, "apply", *options, "k.py")
    assert code == 1
    assert [f["kernel"] for f in files["k.py"]["fixes"]] == ["other"]
    assert "double differs from wrong" in reasons(files["k.py"])


def test_other_inputs_than_were_recorded_are_told(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": HEALTHY})
    assert mgpu_fix("golden", "record", "k.py", cwd=tmp_path).returncode == 0
    write(tmp_path, {"k.py": HEALTHY.replace("arange(128, ", "arange(1, 129, ").replace("ones(128", "zeros(128")})
    code, files = report(tmp_path, "golden", "verify", "k.py")
    assert (code, [r["type"] for r in files["k.py"]["remaining"]]) == (1, ["OtherInputs"])


def test_another_python_gives_the_numbers(observer: Observer, tmp_path: Path) -> None:
    other = os.environ.get("MGPU_FIX_ORACLE_PYTHON", sys.executable)
    text = BROKEN.replace(
        "        @pl.when(warp_id == 0)\n        def _():\n            o_ref[...]", "        o_ref[...]"
    )
    text = text.replace(
        "o_ref[...] = x_ref[...] * 2", "o_ref[pl.ds(warp_id * 32, 32)] = x_ref[pl.ds(warp_id * 32, 32)] * 2"
    )
    write(tmp_path, {"k.py": text})
    code, files = report(tmp_path, "apply", "--oracle-python", other, "k.py")
    # One that knows no more than this one proves no more.
    if other == sys.executable and not (observer.jax and observer.capabilities["warps"]):
        assert code == 1
    else:
        assert (code, {k["verified_by"] for k in files["k.py"]["kernels"]}) == (0, {"interpreter"}), files
    ran = mgpu_fix("apply", "--oracle-python", str(tmp_path), "k.py", cwd=tmp_path)
    assert (ran.returncode, "is no Python that can be run" in ran.stderr) == (2, True)
    ran = mgpu_fix("apply", "--oracle-python", "/bin/true", "k.py", cwd=tmp_path)
    assert (ran.returncode, "/bin/true" in ran.stderr) == (2, True)
