"""Command lines that run Python or pytest, taken apart."""

import sys
from pathlib import Path

import pytest

from mgpu_fix.model import from_json, to_json
from mgpu_fix.observe.command import Command, CommandError, parse

HERE = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("python train.py --steps 1", Command("script", "train.py", ("--steps", "1"))),
        (f"{HERE}/python -u 'my file.py'", Command("script", "my file.py")),
        (f"python{sys.version_info[0]}.{sys.version_info[1]} a.py -m b", Command("script", "a.py", ("-m", "b"))),
        ("python3 -m pkg.mod -k 'a b'", Command("module", "pkg.mod", ("-k", "a b"))),
        ("python -um pkg", Command("module", "pkg")),
        ("python -c 'print(1)' x", Command("code", "print(1)", ("x",))),
        ("pytest tests/test_k.py -k warp", Command("pytest", argv=("tests/test_k.py", "-k", "warp"))),
        ("py.test", Command("pytest")),
        ("python -mpytest -x", Command("pytest", argv=("-x",), local=True)),
        (
            "JAX_ENABLE_X64=1 A='b c' python a.py",
            Command("script", "a.py", (), False, (("JAX_ENABLE_X64", "1"), ("A", "b c"))),
        ),
    ],
)
def test_a_command_is_taken_apart(text: str, command: Command) -> None:
    assert parse(text) == command
    assert from_json(Command, to_json(command)) == command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no command"),
        ("A=1", "names no command"),
        ("python 'a.py", "no closing quotation"),
        ("frobnicate a.py", "'frobnicate' is not known; a program is run by python or pytest"),
        ("uv run a.py", "'uv' is not known"),
        ("python", "needs a script"),
        ("python -", "needs a script"),
        ("python -m", "names nothing to run"),
        ("python -O a.py", "-O cannot be taken over"),
        ("python2 a.py", "is not the Python that mgpu-fix is installed in"),
        ("/nowhere/python a.py", "there is no /nowhere/python"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(CommandError) as error:
        parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_another_environment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    with pytest.raises(CommandError, match="belongs to another environment"):
        parse(f"{tmp_path}/python a.py")
