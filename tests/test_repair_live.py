"""From disk to disk: what is written, byte for byte, and what is told."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from test_cli import mgpu_fix

from mgpu_fix.report.json import schema

pytestmark = pytest.mark.live

BROKEN = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def double(x_ref, o_ref):
    return x_ref[...] * 2  # twice


kernel = pl.kernel(double, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
print(kernel(jnp.arange(128, dtype=jnp.float32))[:3])
"""
FIXED = BROKEN.replace("return x_ref", "o_ref[...] = x_ref")

ENCODINGS = {
    "plain": (BROKEN.encode(), FIXED.encode()),
    "crlf": (BROKEN.replace("\n", "\r\n").encode(), FIXED.replace("\n", "\r\n").encode()),
    "no final newline": (BROKEN.rstrip().encode(), FIXED.rstrip().encode()),
    "tabs": (BROKEN.replace("    ", "\t").encode(), FIXED.replace("    ", "\t").encode()),
    "bom": (b"\xef\xbb\xbf" + BROKEN.encode(), b"\xef\xbb\xbf" + FIXED.encode()),
    "latin-1": tuple(
        ("# coding: latin-1\n" + t.replace("twice", "zweimal für é")).encode("latin-1") for t in (BROKEN, FIXED)
    ),
    "non-ascii": tuple(t.replace("twice", "двaжды 😋").encode() for t in (BROKEN, FIXED)),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_apply_and_git_apply_of_the_diff_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    before, after = ENCODINGS[name]
    script = tmp_path / "kernel.py"
    script.write_bytes(before)
    diffed = subprocess.run(
        [sys.executable, "-m", "mgpu_fix", "apply", "--diff", "kernel.py"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert diffed.returncode == 1
    assert script.read_bytes() == before
    subprocess.run(["git", "apply", "-"], input=diffed.stdout, cwd=tmp_path, check=True)
    assert script.read_bytes() == after
    script.write_bytes(before)
    assert mgpu_fix("apply", "kernel.py", cwd=tmp_path).returncode == 0
    assert script.read_bytes() == after
    assert os.listdir(tmp_path) == ["kernel.py"]


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(FIXED)
    stamp = script.stat().st_mtime_ns
    ran = mgpu_fix("apply", "kernel.py", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "kernel.py: clean, 1 kernel call seen\n")
    assert script.stat().st_mtime_ns == stamp


def test_check_says_what_apply_would_do(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(BROKEN)
    for args in (["apply", "--check"], ["check"]):
        ran = mgpu_fix(*args, "kernel.py", cwd=tmp_path)
        assert ran.returncode == 1
        assert (tmp_path / "kernel.py").read_text() == BROKEN


def test_the_json_report_keeps_its_schema(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(BROKEN)
    (tmp_path / "other.py").write_text(BROKEN.replace("return x_ref[...] * 2", "o_ref[...] = pl.nothing(x_ref)"))
    ran = mgpu_fix("apply", "--output-format", "json", "kernel.py", "other.py", "missing.py", cwd=tmp_path)
    report = json.loads(ran.stdout)
    jsonschema.validate(report, schema())
    assert ran.returncode == 2
    assert [f["status"] for f in report["files"]] == ["fixed", "unfixed", "blocked"]
    [fix] = report["files"][0]["fixes"]
    assert (fix["code"], fix["line"], fix["column"], fix["applicability"]) == ("MGF401", 8, 5, "safe")
    assert fix["verified_by"] == "interpreter"
    [left] = report["files"][1]["remaining"]
    assert (left["type"], left["line"]) == ("AttributeError", 8)
    assert (tmp_path / "kernel.py").read_text() == FIXED


def test_a_helper_module_is_fixed_only_if_it_is_named(tmp_path: Path) -> None:
    helper, main = BROKEN.split("kernel = ")
    (tmp_path / "helper.py").write_text(helper)
    (tmp_path / "main.py").write_text(helper.split("def double")[0] + "from helper import double\nkernel = " + main)
    ran = mgpu_fix("apply", "main.py", cwd=tmp_path)
    assert ran.returncode == 1
    assert "helper.py, which was not named" in ran.stdout
    ran = mgpu_fix("apply", "main.py", "helper.py", cwd=tmp_path)
    assert (tmp_path / "helper.py").read_text() == helper.replace("return x_ref", "o_ref[...] = x_ref")
    assert ran.returncode == 0, ran.stdout


def test_a_link_stays_a_link_and_a_mode_a_mode(tmp_path: Path) -> None:
    real = tmp_path / "real.py"
    real.write_text(BROKEN)
    real.chmod(0o750)
    link = tmp_path / "link.py"
    link.symlink_to(real)
    assert mgpu_fix("apply", "link.py", cwd=tmp_path).returncode == 0
    assert link.is_symlink()
    assert real.read_text() == FIXED
    assert real.stat().st_mode & 0o777 == 0o750


def test_a_file_that_changes_meanwhile_is_not_written(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(BROKEN + "open(__file__, 'a').write('# more\\n')\n")
    ran = mgpu_fix("apply", "kernel.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert "changed on disk meanwhile" in ran.stdout
    assert "return x_ref" in script.read_text()


@pytest.mark.parametrize(("what", "mode"), [("folder/kernel.py", 0o444), ("folder", 0o555)])
def test_what_is_read_only_is_not_written(tmp_path: Path, what: str, mode: int) -> None:
    script = tmp_path / "folder" / "kernel.py"
    script.parent.mkdir()
    script.write_text(BROKEN)
    (tmp_path / what).chmod(mode)
    ran = mgpu_fix("apply", "folder/kernel.py", cwd=tmp_path)
    script.parent.chmod(0o755)
    assert ran.returncode == 2
    assert "is read-only; nothing was written" in ran.stdout
    assert script.read_text() == BROKEN


@pytest.mark.parametrize("wait", [0.5, 2.5, 4.0])
def test_an_interrupt_leaves_the_file_and_no_process(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, wait: float
) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(BROKEN + "import time\nwhile True: time.sleep(1)\n")
    before = script.read_bytes()
    temporary = tmp_path_factory.mktemp("temporary")
    process = subprocess.Popen(
        [sys.executable, "-m", "mgpu_fix", "apply", "kernel.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests themselves run in the background, an interrupt is ignored and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in said
    assert process.returncode != 130 or said.endswith("mgpu-fix: interrupted; files are as they were\n")
    assert not list(temporary.iterdir())
    assert script.read_bytes() == before
    assert os.listdir(tmp_path) == ["kernel.py"]


def test_a_program_that_calls_no_kernel_says_how_to_call_one(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(BROKEN.split("print(", maxsplit=1)[0])
    ran = mgpu_fix("apply", "kernel.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert "--call double" in ran.stdout or "--call kernel" in ran.stdout
    ran = mgpu_fix("apply", "--call", "kernel", "--arg", "f32[128]", "kernel.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "kernel.py").read_text() == FIXED.split("print(")[0]


def test_a_comment_that_ignores_no_rule_is_told_and_nothing_else_changes(tmp_path: Path) -> None:
    text = BROKEN.replace("# twice", "# mgpu-fix: ignore[MGF999]")
    assert text != BROKEN
    (tmp_path / "k.py").write_text(text)
    for command, code in (("check", 1), ("apply", 0)):
        ran = mgpu_fix(command, "k.py", cwd=tmp_path)
        assert ran.returncode == code
        told = "no rule is called MGF999: its comment ignores nothing; mgpu-fix rules lists them"
        [note] = [line for line in ran.stdout.splitlines() if "note" in line]
        assert told in note and f"k.py:{text[: text.index('# mgpu')].count(chr(10)) + 1}" in note
    assert (tmp_path / "k.py").read_text() == FIXED.replace("# twice", "# mgpu-fix: ignore[MGF999]")


def test_caught_errors_are_left_unless_asked_for(tmp_path: Path) -> None:
    text = BROKEN.replace("print(", "try:\n    print(").rstrip() + "\nexcept ValueError:\n    pass\n"
    (tmp_path / "kernel.py").write_text(text)
    ran = mgpu_fix("apply", "kernel.py", cwd=tmp_path)
    assert (ran.returncode, (tmp_path / "kernel.py").read_text()) == (0, text)
    assert "1 error is caught by the program" in ran.stdout
    assert mgpu_fix("apply", "--include-caught", "kernel.py", cwd=tmp_path).returncode == 0
    assert "o_ref[...] = x_ref" in (tmp_path / "kernel.py").read_text()


def test_a_chain_of_two_rules_is_written_once(tmp_path: Path) -> None:
    text = BROKEN.replace("pl.kernel(double, out_type=", "plgpu.kernel(double, out_shape=").replace(
        ", mesh=plgpu.Mesh()", ""
    )
    (tmp_path / "kernel.py").write_text(text)
    ran = mgpu_fix("apply", "--output-format", "json", "kernel.py", cwd=tmp_path)
    report = json.loads(ran.stdout)
    assert ran.returncode == 0
    codes = {f["code"] for f in report["files"][0]["fixes"]}
    # plgpu.kernel takes out_shape up to JAX 0.11.0.
    assert codes in ({"MGF401", "MGF901"}, {"MGF401"})
    assert "o_ref[...] = x_ref" in (tmp_path / "kernel.py").read_text()


def test_two_programs_may_change_one_file(tmp_path: Path) -> None:
    helper = BROKEN.split("kernel = ", maxsplit=1)[0]
    second = helper.split("\n\n\n")[1].replace("double", "triple").replace("* 2  # twice", "* 3")
    (tmp_path / "helper.py").write_text(helper + second)
    head = helper.split("def double")[0] + "from helper import {0}\nkernel = "
    main = BROKEN.split("kernel = ", 1)[1]
    for name in ("double", "triple"):
        (tmp_path / f"{name}.py").write_text(head.format(name) + main.replace("double", name))
    ran = mgpu_fix("apply", "double.py", "triple.py", "helper.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "helper.py").read_text() == (helper + second).replace("return x_ref", "o_ref[...] = x_ref")


def test_a_reproducer_raises_the_same_error_in_a_fresh_process(tmp_path: Path) -> None:
    text = BROKEN.replace("return x_ref[...] * 2", "o_ref[...] = jnp.sort(x_ref[...])") + "print('unrelated')\n"
    (tmp_path / "k.py").write_text(text)
    ran = mgpu_fix("check", "k.py", "--emit-repro", "r.py", cwd=tmp_path)
    assert "r.py raises it in a fresh process" in ran.stdout, ran.stdout
    assert "unrelated" not in (tmp_path / "r.py").read_text()
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    alone = subprocess.run([sys.executable, tmp_path / "r.py"], capture_output=True, text=True, env=env, check=False)
    assert alone.returncode == 1
    assert "NotImplementedError: Unimplemented primitive in Pallas Mosaic GPU lowering: sort" in alone.stderr
    (tmp_path / "k.py").write_text(FIXED)
    ran = mgpu_fix("check", "k.py", "--emit-repro", "none.py", cwd=tmp_path)
    assert "nothing was written to none.py, since nothing fails" in ran.stdout
    assert not (tmp_path / "none.py").exists()


@pytest.mark.parametrize("around", ["jax.vmap(kernel)", "jax.jit(jax.vmap(kernel))", "jax.vmap(jax.jit(kernel))"])
def test_a_kernel_that_vmap_batches_is_proven_by_its_own_numbers(around: str, tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    import jax

    # JAX 0.10 batches pl.kernel by one only.
    out = "out_shape" if tuple(map(int, jax.__version__.split(".")[:2])) < (0, 11) else "out_type"
    text = BROKEN.replace("pl.kernel(double, out_type", f"plgpu.kernel(double, {out}").replace(
        ", mesh=plgpu.Mesh()", ""
    )
    batched = text[: text.index("print(")] + f"print({around}(jnp.arange(256.0).reshape(2, 128)))\n"
    script.write_text(batched)
    assert mgpu_fix("golden", "record", str(script)).returncode == 1
    fixed = mgpu_fix("apply", "--require", "interpreter", str(script))
    assert fixed.returncode == 0, fixed.stdout
    recorded = mgpu_fix("golden", "record", str(script)).stdout
    assert "1 kernel call recorded" in recorded and "not recorded" not in recorded
