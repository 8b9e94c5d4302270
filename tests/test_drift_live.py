"""API drift met by a run, and upgrades that a run proves: the real lowering and interpreter."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from test_cli import mgpu_fix

pytestmark = pytest.mark.live

HEAD = """\
import functools
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

OUT = jax.ShapeDtypeStruct((128,), jnp.float32)
"""
TAIL = """

def example_args():
    return (jnp.arange(128, dtype=jnp.float32),)
"""

#: What a kernel of one drift looks like, with the first JAX that refuses it, and what it becomes.
DRIFTS = {
    "MGF902": (
        "0.6.1",
        "@functools.partial(plgpu.kernel, out_type=OUT, compiler_params=plgpu.GPUCompilerParams())\n"
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...] * 2\n",
        "plgpu.CompilerParams()",
    ),
    "MGF904": (
        "0.12.0",
        "@functools.partial(plgpu.kernel, out_type=OUT)\n"
        "def kernel(x_ref, o_ref):\n    o_ref[...] = plgpu.load(x_ref, pl.ds(0, 128)) * 2\n",
        "plgpu.load(x_ref.at[pl.ds(0, 128)])",
    ),
    "MGF906": (
        "0.9.0",
        "@functools.partial(plgpu.kernel, out_type=OUT)\n"
        "def kernel(x_ref, o_ref):\n    pl.store(o_ref, (slice(None),), pl.load(x_ref, (slice(None),)) * 2)\n",
        "o_ref[:] = x_ref[:] * 2",
    ),
    "MGF505": (
        "0.6.0",
        "@functools.partial(plgpu.kernel, out_type=OUT)\n"
        "def kernel(x_ref, o_ref):\n"
        "    spec = plgpu.BlockSpec((128,), lambda i: (i,))\n"
        "    def body(x_smem, o_smem):\n        o_smem[...] = x_smem[...] * 2\n"
        "    plgpu.emit_pipeline(body, grid=(1,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)\n",
        "def body(_, x_smem, o_smem)",
    ),
    "MGF907": (
        "0.8.0",
        '@functools.partial(plgpu.kernel, out_type=OUT, grid=(1,), grid_names=("g",))\n'
        "def kernel(x_ref, o_ref):\n"
        '    @plgpu.nd_loop((1,), collective_axes="g")\n'
        "    def loop(idx):\n        (i,) = idx\n"
        "        o_ref[pl.ds(i * 128, 128)] = x_ref[pl.ds(i * 128, 128)] * 2\n",
        "(i,) = loop_info.index",
    ),
}


def report(folder: Path, *args: str) -> tuple[int, dict[str, Any]]:
    ran = mgpu_fix(*args, "--output-format", "json", cwd=folder)
    assert ran.stdout, ran.stderr
    [file] = json.loads(ran.stdout)["files"]
    return ran.returncode, file


def refuses(version: str) -> bool:
    import jax

    return jax.__version_info__ >= tuple(map(int, version.split(".")))


@pytest.mark.parametrize("code", DRIFTS)
def test_apply_repairs_what_a_run_meets(code: str, tmp_path: Path) -> None:
    since, text, new = DRIFTS[code]
    if not refuses(since):
        pytest.skip(f"JAX takes it until {since}")
    (tmp_path / "k.py").write_text(HEAD + text + TAIL)
    status, file = report(tmp_path, "apply", "k.py")
    assert (status, file["status"]) == (0, "fixed"), file
    assert {fix["code"] for fix in file["fixes"]} == {code}
    assert new in (tmp_path / "k.py").read_text()
    assert [kernel["stage"] for kernel in file["kernels"]] == ["run"]
    assert report(tmp_path, "apply", "k.py")[0] == 0


def test_upgrade_is_proven_by_a_run(tmp_path: Path) -> None:
    text = HEAD + "".join(DRIFTS[code][1].replace("kernel(x_ref", f"{code}(x_ref") for code in DRIFTS)
    calls = "".join(f"    np.testing.assert_array_equal({code}(x), 2 * x)\n" for code in DRIFTS)
    (tmp_path / "k.py").write_text(f"{text}\n\ndef main(x):\n{calls}")
    status, file = report(tmp_path, "upgrade", "k.py", "--call", "main", "--arg", "f32[128]")
    assert status == 0, file
    assert {fix["verified_by"] for fix in file["fixes"]} <= {"lowered", "compiled", "interpreter"}
    assert {fix["code"] for fix in file["fixes"]} == {code for code in DRIFTS if refuses(DRIFTS[code][0])}
    assert {kernel["stage"] for kernel in file["kernels"]} == {"run"}


def test_upgrade_goes_on_to_repair_what_the_run_shows(tmp_path: Path) -> None:
    body = "def body(x_ref, o_ref):\n    return x_ref[...] * 2\n"
    (tmp_path / "k.py").write_text(
        f"{HEAD}{body}def kernel(x):\n    p = plgpu.GPUCompilerParams()\n"
        f"    return pl.kernel(body, out_type=OUT, mesh=plgpu.Mesh(), compiler_params=p)(x)\n{TAIL}"
    )
    status, file = report(tmp_path, "upgrade", "k.py", "--call", "kernel", "--arg", "f32[128]")
    assert (status, [fix["code"] for fix in file["fixes"]]) == (0, ["MGF902", "MGF401"]), file


def test_an_upgrade_that_is_worse_is_not_written(tmp_path: Path) -> None:
    # The program looks at its own text, and gives up when that is new.
    text = HEAD + textwrap.dedent("""\
        OLD = "plgpu.GPU" + "Mesh" in open(__file__).read()

        @functools.partial(plgpu.kernel, out_type=OUT)
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * (2 if OLD else 3)

        def unused():
            return plgpu.GPUMesh()
    """)
    (tmp_path / "k.py").write_text(text + TAIL)
    status, file = report(tmp_path, "upgrade", "k.py", "--call", "kernel", "--arg", "f32[128]")
    assert status == 1
    assert file["reason"].startswith("nothing was changed, since with the change kernel computes something else"), file
    assert (tmp_path / "k.py").read_text() == text + TAIL


@pytest.mark.parametrize("call", ["nope", ""])
def test_an_upgrade_that_no_run_shows_is_not_written(call: str, tmp_path: Path) -> None:
    text = (
        HEAD + "kernel = plgpu.GPUCompilerParams()\nraise SystemExit(3)\n" if not call else HEAD + DRIFTS["MGF902"][1]
    )
    (tmp_path / "k.py").write_text(text)
    how = ["--call", call, "--arg", "f32[128]"] if call else ["--run", "python k.py"]
    status, file = report(tmp_path, "upgrade", "k.py", *how)
    assert (status, file["status"], file["diff"]) == (2, "blocked", ""), file
    assert (tmp_path / "k.py").read_text() == text
