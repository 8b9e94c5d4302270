"""``mgpu-fix upgrade``: trees, what is read and written, reports and exit codes. Nothing here imports JAX."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from mgpu_fix import walk
from mgpu_fix.report import json as json_report
from mgpu_fix.versions import Window, before, parse

OLD = b"""\
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

kernel = plgpu.kernel(body, out_shape=o)  # \xc3\xa4
"""
NEW = OLD.replace(b"out_shape", b"out_type")


def run(*args: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mgpu_fix", "upgrade", "--to", "0.12.0", *args]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_tree_is_upgraded_once(tmp_path: Path) -> None:
    files = {"a.py": OLD, "b/c.py": OLD, "b/d.py": b"x = 1\n", "notes.txt": OLD}
    write(tmp_path, files)
    done = run(".", cwd=tmp_path)
    assert snapshot(tmp_path) == {**files, "a.py": NEW, "b/c.py": NEW}
    assert "of 2 files with Pallas in them 2 changed" in done.stdout
    assert "plgpu.kernel(out_shape=)      2" in done.stdout
    assert "Unverified" in done.stdout
    again = run(".", cwd=tmp_path)
    assert snapshot(tmp_path) == {**files, "a.py": NEW, "b/c.py": NEW}
    assert again.stdout == "of 2 files with Pallas in them 0 changed\n"


def test_many_files_are_shared_out(tmp_path: Path) -> None:
    write(tmp_path, {f"k{i:02}.py": OLD for i in range(20)})
    run("--jobs", "2", ".", cwd=tmp_path)
    assert set(snapshot(tmp_path).values()) == {NEW}


def test_a_patch_is_all_that_diff_prints(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD, "b.py": OLD.replace(b"\n", b"\r\n")})
    command = [sys.executable, "-m", "mgpu_fix", "upgrade", "--to", "0.12.0", "--diff", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 1
    assert snapshot(tmp_path)["a.py"] == OLD
    subprocess.run(["git", "apply"], input=done.stdout, cwd=tmp_path, check=True)
    assert snapshot(tmp_path) == {"a.py": NEW, "b.py": NEW.replace(b"\n", b"\r\n")}


def test_a_patch_names_odd_files_as_git_does(tmp_path: Path) -> None:
    write(tmp_path, {'a\tb "c" \\d.py': OLD})
    done = subprocess.run(
        [sys.executable, "-m", "mgpu_fix", "upgrade", "--to", "0.12.0", "--diff", "."],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    subprocess.run(["git", "apply"], input=done.stdout, cwd=tmp_path, check=True)
    assert snapshot(tmp_path) == {'a\tb "c" \\d.py': NEW}


def test_check_says_it_with_the_exit_code(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD, "b.py": NEW})
    assert not run("--check", "a.py", cwd=tmp_path, code=1).stdout
    assert not run("--check", "b.py", cwd=tmp_path).stdout
    assert snapshot(tmp_path) == {"a.py": OLD, "b.py": NEW}


def test_what_is_left_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD + b"y = pl.load(x, i, mask=m)\n"})
    done = run("a.py", cwd=tmp_path, code=1)
    assert "a.py:5:5: MGF906: `mask` at line 5 has no other form" in done.stdout
    assert snapshot(tmp_path)["a.py"].startswith(NEW)


def test_json_keeps_its_schema(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD, "b.py": b"import jax.experimental.pallas\n"})
    report = json.loads(run("--output-format", "json", ".", cwd=tmp_path).stdout)
    jsonschema.validate(report, json_report.schema())
    assert [(f["path"], f["status"]) for f in report["files"]] == [("a.py", "fixed"), ("b.py", "clean")]
    [fix] = report["files"][0]["fixes"]
    assert (fix["code"], fix["verified_by"], fix["line"], fix["column"]) == ("MGF901", None, 4, 10)


def test_a_file_that_is_no_python_stops_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD, "bad.py": b"import pallas\ndef f(:\n", "latin.py": b"pallas = '\xe4'\n"})
    done = run(".", cwd=tmp_path, code=2)
    assert "bad.py: blocked: syntax error" in done.stdout
    assert "latin.py: blocked: not utf-8 text" in done.stdout
    assert snapshot(tmp_path)["a.py"] == NEW


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.py"], "missing.py: blocked: there is no such file"),
        (["--from", "new", "a.py"], "mgpu-fix: --from: 'new' is no version; give one like 0.10.2"),
        (["--from", "0.13", "a.py"], "mgpu-fix: --from 0.13 is newer than 0.12.0; code only goes forward"),
        (["--select", "MGF999", "a.py"], "mgpu-fix: no rule is called MGF999; mgpu-fix rules lists them"),
        (["--diff", "--check", "a.py"], "mgpu-fix: --diff and --check exclude each other"),
    ],
)
def test_bad_input_gets_one_line(tmp_path: Path, args: list[str], message: str) -> None:
    write(tmp_path, {"a.py": OLD})
    done = run(*args, cwd=tmp_path, code=2)
    assert message in done.stdout + done.stderr
    assert snapshot(tmp_path) == {"a.py": OLD}


def test_a_file_that_is_nested_too_deeply_stops_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD, "deep.py": b"import pallas\nx = " + b" + ".join([b"1"] * 5000)})
    done = run(".", cwd=tmp_path, code=2)
    assert "deep.py: blocked: its code is nested too deeply" in done.stdout
    assert snapshot(tmp_path)["a.py"] == NEW


def test_only_the_rules_asked_for(tmp_path: Path) -> None:
    both = OLD + b"m = plgpu.GPUMesh()\n"
    write(tmp_path, {"a.py": both, "b.py": both})
    run("--select", "renamed-name", "a.py", cwd=tmp_path)
    run("--ignore", "MGF902", "b.py", cwd=tmp_path)
    assert snapshot(tmp_path) == {"a.py": both.replace(b"GPUMesh", b"Mesh"), "b.py": NEW + b"m = plgpu.GPUMesh()\n"}


def test_a_read_only_file_keeps_all_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": OLD, "b.py": OLD})
    (tmp_path / "b.py").chmod(0o444)
    inode = (tmp_path / "a.py").stat().st_ino
    done = run(".", cwd=tmp_path, code=2)
    assert "b.py: blocked: it is read-only" in done.stdout
    assert "a.py: blocked: b.py could not be written, so nothing was" in done.stdout
    assert snapshot(tmp_path) == {"a.py": OLD, "b.py": OLD}
    assert (tmp_path / "a.py").stat().st_ino == inode


def test_what_others_import_keeps_its_name(tmp_path: Path) -> None:
    exporting = b"from jax.experimental.pallas.mosaic_gpu import GPUMesh\n\nmesh = GPUMesh()\n"
    user = b"from .compat import GPUMesh\n"
    write(tmp_path, {"p/compat.py": exporting, "p/alone.py": exporting, "p/user.py": user})
    run("p", cwd=tmp_path)
    assert snapshot(tmp_path) == {
        "p/compat.py": exporting.replace(b"import GPUMesh", b"import Mesh as GPUMesh"),
        "p/alone.py": exporting.replace(b"GPUMesh", b"Mesh"),
        "p/user.py": user,
    }


def found(root: Path, *paths: str) -> list[str]:
    return [os.path.relpath(p, root) for p in walk.python_files([str(root / p) for p in paths])]


def test_which_files_are_looked_at(tmp_path: Path) -> None:
    names = ["z.py", "a/b.py", "a/c.txt", ".venv/lib/x.py", "node_modules/y.py", "a/__pycache__/d.py", "script"]
    write(tmp_path, dict.fromkeys(names, b""))
    (tmp_path / "link.py").symlink_to("z.py")
    (tmp_path / "linked").symlink_to("a")
    assert found(tmp_path, ".") == ["a/b.py", "z.py"]
    assert found(tmp_path, "script", "link.py", "z.py") == ["script", "link.py"]
    assert found(tmp_path, ".venv/lib") == [".venv/lib/x.py"]


def test_gitignore_is_respected(tmp_path: Path) -> None:
    names = ["a.py", "gen/b.py", "gen/keep/c.py", "sub/x_pb2.py", "sub/y.py", "sub/deep/y.py"]
    write(tmp_path, dict.fromkeys(names, b""))
    write(tmp_path, {".gitignore": b"gen/\n*_pb2.py\n", "sub/.gitignore": b"/y.py\n!x_pb2.py\n"})
    assert found(tmp_path, ".") == ["a.py", "sub/deep/y.py", "sub/x_pb2.py"]
    assert found(tmp_path, "gen/b.py") == ["gen/b.py"]


def test_versions() -> None:
    assert parse("0.12.0.1") == (0, 12, 0, 1)
    assert parse("0.11.0.dev20260101+abc") == (0, 11, 0)
    assert before(["0.11.0", "0.9.2"]) < parse("0.9.2")
    assert before(["0.11.0"]) > parse("0.10.9")
    window = Window(parse("0.9.0"), parse("0.11.0"))
    assert [window.crosses(v) for v in ("0.9.0", "0.10.0", "0.11.0", "0.11.2")] == [False, True, True, False]
    with pytest.raises(ValueError, match="'x' is no version"):
        parse("x")
