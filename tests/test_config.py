"""Options from pyproject.toml."""

from pathlib import Path

import pytest
from test_cli import mgpu_fix

from mgpu_fix import config
from mgpu_fix.console import UsageError


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pyproject.toml"
    file.write_text(text)
    return file


def test_the_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    top = written(tmp_path, "[tool.mgpu-fix]\nselect = ['MGF401']\n")
    written(tmp_path / "pkg", "[project]\nname = 'mgpu-fix-user'\n")
    (tmp_path / "pkg" / "deep").mkdir()
    assert config.find(tmp_path / "pkg" / "deep") == top
    (tmp_path / "pkg" / ".git").mkdir()
    assert config.find(tmp_path / "pkg" / "deep") is None


def test_options_are_read_as_the_command_line_spells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "[tool.mgpu-fix]\nselect = ['MGF401', 'MGF101']\nunsafe-fixes = true\n"
    text += "golden = 'kept'\noracle-python = 'bin/py'\nreference = 'truth.py:f'\n"
    names = {"select", "unsafe_fixes", "golden", "oracle_python", "reference"}
    found = config.options(written(tmp_path / "top", text), names)
    assert found == {
        "select": "MGF401,MGF101",
        "unsafe_fixes": True,
        "golden": "top/kept",
        "oracle_python": "top/bin/py",
        "reference": "top/truth.py:f",
    }


def test_files_are_run_by_what_their_pattern_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "[tool.mgpu-fix.targets]\n'kernels/*.py' = 'pytest tests'\n'train.py' = 'python train.py --steps 1'\n"
    found = config.options(written(tmp_path, text), {"target"})["target"]
    for name, command in [
        ("kernels/a.py", "pytest tests"),
        (str(tmp_path / "kernels" / "a.py"), "pytest tests"),
        ("train.py", "python train.py --steps 1"),
        ("other.py", ""),
    ]:
        assert config.target(name, found) == command
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    found = config.options(tmp_path / "pyproject.toml", {"target"})["target"]
    assert config.target("../kernels/a.py", found) == "pytest tests"
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path / "kernels")
    assert config.target("a.py", config.options(tmp_path / "pyproject.toml", {"target"})["target"]) == "pytest tests"
    with pytest.raises(UsageError, match="is not like"):
        config.target("a.py", ["pytest"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.mgpu-fix]\nselct = 1\n", "selct is no option; there are "),
        ("[tool.mgpu-fix]\nfiles = ['a.py']\n", "files is no option"),
        ("[tool.mgpu-fix.select]\na = 1\n", "select takes no table"),
        ("[tool]\nmgpu-fix = 3\n", "is no table"),
        ("[tool.mgpu-fix]\nrtol = true\n", "rtol takes a number"),
        ("[tool.mgpu-fix\n", "pyproject.toml: "),
        ("[tool.mgpu-fix]\nrequire = 'luck'\n", "luck"),
        ("[tool.mgpu-fix]\nselect = 'MGF999'\n", "no rule is called MGF999"),
        ("[tool.mgpu-fix]\nreference = 'nowhere:f'\ntimeout = 'long'\n", "long"),
    ],
)
def test_a_wrong_file_is_one_clear_error(text: str, message: str, tmp_path: Path) -> None:
    written(tmp_path, text)
    (tmp_path / "k.py").write_text("from jax.experimental import pallas\n")
    ran = mgpu_fix("apply", "k.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert mgpu_fix("apply", "--help", cwd=tmp_path).returncode == 0


def test_the_command_line_outweighs_the_file(tmp_path: Path) -> None:
    written(tmp_path, "[tool.mgpu-fix]\noutput-format = 'json'\n")
    assert mgpu_fix("apply", "missing.py", cwd=tmp_path).stdout.startswith("{")
    assert "blocked" in mgpu_fix("apply", "--output-format", "text", "missing.py", cwd=tmp_path).stdout
    with pytest.raises(UsageError):
        config.options(tmp_path / "pyproject.toml", {"select"})
