"""The command line without JAX: help, usage errors, the catalogue."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def mgpu_fix(*args: str, cwd: Path | None = None, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mgpu_fix", *args],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        check=False,
    )


def test_help_imports_neither_jax_nor_libcst() -> None:
    code = (
        "import sys; from mgpu_fix.cli import run; run(); print({'jax', 'libcst', 'numpy', 'pygls'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "set()"
    assert "apply" in ran.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["apply"], "Missing argument"),
        (["apply", "--no-such-option", "f.py"], "No such option"),
        (["frobnicate"], "No such command"),
        (["apply", "missing.py"], "missing.py: blocked: there is no such file"),
        (["apply", "."], ".: blocked: it is a directory"),
        (["apply", "--arch", "sm_1", "f.py"], "--arch sm_1 is not known"),
        (["apply", "--arg", "f32[2]", "f.py"], "--arg needs --call"),
        (["apply", "--select", "MGF999", "f.py"], "no rule is called MGF999"),
        (["apply", "--require", "luck", "f.py"], "luck"),
        (["apply", "--run", "frobnicate", "f.py"], "--run: 'frobnicate' is not known; a program is run by python or"),
        (["apply", "--run", "python 'f.py", "f.py"], '--run: "python \'f.py" cannot be read: no closing quotation'),
        (["check", "--run", "python missing.py", "f.py"], "--run: there is no file missing.py"),
        (["check", "-m", "", "f.py"], "-m: python -m names nothing to run"),
        (["apply", "-m", "a", "--run", "pytest", "f.py"], "--run and -m exclude each other"),
        (["apply", "--run", "pytest", "--call", "f", "f.py"], "--call is for files that are run as scripts"),
        (["apply", "--run", "pytest"], "Missing argument"),
        (["apply", "--output-file", "./k.py", "k.py"], "--output-file: ./k.py is one of the files to work on"),
        (["upgrade", "--output-file", "none/r.txt", "."], "--output-file: none/r.txt cannot be written"),
        (["apply", "--output-file", ".", "k.py"], "--output-file: . cannot be written"),
        (["apply", "--rtol", "nan", "k.py"], "--rtol nan is no tolerance"),
        (["apply", "-i", "--check", "k.py"], "--interactive and --check exclude each other"),
        (["explain", "MGF999"], "no rule knows 'MGF999'"),
    ],
)
def test_wrong_usage_is_one_clear_error_and_exit_2(args: list[str], message: str, tmp_path: Path) -> None:
    ran = mgpu_fix(*args, cwd=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x = = 1  # pallas\n", "syntax error"),
        (b"# pallas\nx = '\xff'\ny = 1\n", "not utf-8 text at line 2; declare its encoding in a comment"),
        (b"# pallas\n\n\nx = '\xff'\n", "not utf-8 text at line 4; declare its encoding in a comment"),
    ],
)
def test_what_is_not_python_is_blocked_and_left(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(data)
    ran = mgpu_fix("apply", "f.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stdout.startswith("f.py: blocked: ")
    assert reason in ran.stdout
    assert (tmp_path / "f.py").read_bytes() == data


def test_a_program_without_pallas_is_clean_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("raise SystemExit(9)\n")
    ran = mgpu_fix("apply", "f.py", cwd=tmp_path)
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (0, "f.py: clean")


def test_explain_takes_a_code_a_name_and_a_pasted_error() -> None:
    for query in ("MGF901", "mgf901", "renamed-argument"):
        assert mgpu_fix("explain", query).stdout.startswith("# MGF901 renamed-argument\n")
    error = "TypeError: Mesh.__init__() got an unexpected keyword argument 'out_shape'\n"
    assert mgpu_fix("explain", stdin=error).stdout.startswith("# MGF901 renamed-argument\n")
    assert json.loads(mgpu_fix("explain", "MGF901", "--json").stdout)["name"] == "renamed-argument"


def test_rules_are_listed() -> None:
    listed = mgpu_fix("rules").stdout.splitlines()
    assert any(line.startswith("MGF401  kernel-returns-value") for line in listed)
    assert {r["code"] for r in json.loads(mgpu_fix("rules", "--json").stdout)} == {line[:6] for line in listed}
