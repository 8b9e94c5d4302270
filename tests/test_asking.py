"""--interactive: what is asked, and what each answer does."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_cli import mgpu_fix
from test_engine import PATH, Scripted, Swap, compare, engine
from test_report import FIX
from test_upgrade import NEW, OLD

from mgpu_fix.asking import Asker
from mgpu_fix.engine import Engine
from mgpu_fix.model import Fix
from mgpu_fix.report.text import TextReport

PROGRAM = "k = 'fails A'\nm = 'fails B'\n"


def answered(*lines: str) -> tuple[list[bool], str]:
    """What an asker says of four fixes, given these lines."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    given = iter(lines)
    ask = Asker(TextReport(), lambda: next(given, ""), shown)
    said = [ask(FIX) for _ in range(4)]
    return said, shown.buffer.getvalue().decode()  # type: ignore[attr-defined]


def test_each_answer() -> None:
    assert answered("y\n", "N\n", "yes\n", "no\n")[0] == [True, False, True, False]
    assert answered("n\n", "a\n")[0] == [False, True, True, True]
    assert answered("y\n", "q\n")[0] == [True, False, False, False]
    assert answered("what\n", "\n", "y\n")[0] == [True, False, False, False]
    said, shown = answered("y\n")
    assert said == [True, False, False, False]
    assert shown.count("+new") == 2
    assert "k.py\n  MGF401 kernel-returns-value, line 8" in shown


def repaired(accept: Any) -> tuple[str, list[tuple[str, str]]]:
    runner = Scripted({"k": "1", "m": "2"})
    made = engine(PROGRAM, runner, Swap("A", "gives 1", "gives 3"), Swap("B", "gives 2"))
    outcome = Engine(runner, made.catalogue, made.originals, compare=compare, accept=accept).repair()
    return outcome.texts[PATH].text, [(r.kernel, r.reason) for r in outcome.remaining]


def test_what_is_declined_is_left() -> None:
    asked: list[str] = []

    def only_m(fix: Fix) -> bool:
        asked.append(f"{fix.kernel}: {fix.title}")
        return fix.kernel == "m"

    left = "no fix held: make it gives 1: declined; make it gives 3: k computes something else: 3, not 1"
    assert repaired(only_m) == ("k = 'fails A'\nm = 'gives 2'\n", [("k", left)])
    assert asked == ["k: make it gives 1", "m: make it gives 2"]
    assert repaired(lambda fix: False)[0] == PROGRAM
    assert repaired(lambda fix: True)[1] == []


def test_it_needs_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_bytes(OLD)
    for command in ("apply", "upgrade"):
        ran = mgpu_fix(command, "-i", "k.py", cwd=tmp_path)
        assert ran.returncode == 2
        assert "--interactive asks at a terminal" in ran.stderr


@pytest.mark.parametrize(("answer", "text", "code"), [("y", NEW, 0), ("n", OLD, 1)])
def test_upgrade_asks_at_a_terminal(answer: str, text: bytes, code: int, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_bytes(OLD)
    master, slave = pty.openpty()
    os.write(master, f"{answer}\n".encode())
    command = [sys.executable, "-m", "mgpu_fix", "upgrade", "-i", "--to", "0.12.0", "k.py"]
    ran = subprocess.run(command, cwd=tmp_path, stdin=slave, capture_output=True, check=False)
    os.close(master)
    os.close(slave)
    assert (tmp_path / "k.py").read_bytes() == text
    assert ran.returncode == code, ran.stdout
    assert ran.stderr.count(b"Make this change?") == 1


def test_upgrade_leaves_what_a_comment_says_to_ignore(tmp_path: Path) -> None:
    ignored = OLD.replace(b"out_shape=o)", b"out_shape=o)  # mgpu-fix: ignore[MGF901]")
    (tmp_path / "k.py").write_bytes(ignored)
    ran = mgpu_fix("upgrade", "--to", "0.12.0", "k.py", cwd=tmp_path)
    assert (ran.returncode, (tmp_path / "k.py").read_bytes()) == (0, ignored)
    assert "a comment says to ignore it" in ran.stdout
