"""``%load_ext mgpu_fix``: a cell that ends in an error of Pallas' is followed by the rule, and by a proven replacement.

What is proven is the session: the cells that ran well so far, in their order, and the one that failed, run anew in a
process of their own.
"""

import json
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu_fix import commands
from mgpu_fix.api import explain, signals_kept
from mgpu_fix.model import FileReport
from mgpu_fix.observe import Command, Program
from mgpu_fix.observe.run import is_pallas_error
from mgpu_fix.repair import Task
from mgpu_fix.report.text import PROVEN
from mgpu_fix.source import unified_diff

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

#: the one session that this process can have
_sessions: list["Session"] = []


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """What ``%load_ext mgpu_fix`` calls."""
    if not _sessions:
        _sessions.append(Session(shell))
        shell.events.register("post_run_cell", _sessions[0].after)


def unload_ipython_extension(shell: "InteractiveShell") -> None:
    """What ``%unload_ext mgpu_fix`` calls."""
    while _sessions:
        shell.events.unregister("post_run_cell", _sessions.pop().after)


class Session:
    """The cells of one shell, by the numbers of their prompts, as far as they ran well."""

    def __init__(self, shell: "InteractiveShell") -> None:
        self.shell = shell
        # How those ended nobody knows any more.
        earlier = shell.history_manager.input_hist_raw[: shell.execution_count] if shell.history_manager else []
        self.cells = {number: cell for number, cell in enumerate(earlier) if number and cell.strip()}

    def after(self, result: "ExecutionResult") -> None:
        """A cell has ended."""
        number = result.execution_count
        if number is None:
            # Not of the history, as what a front end asks by itself.
            return
        cell, error = result.info.raw_cell if result.info else "", result.error_in_exec
        if result.success:
            self.cells[number] = cell
        elif isinstance(error, Exception) and is_pallas_error(error):
            self._help(error, {**self.cells, number: cell})

    def _help(self, error: Exception, cells: Mapping[int, str]) -> None:
        rule = explain("".join(traceback.format_exception_only(error)))
        if rule:
            self._say(f"{rule.code} {rule.name}: {rule.summary}", f"!mgpu-fix explain {rule.code} says more")
        try:
            file, changed = repaired(cells)
        except commands.ERRORS as e:
            self._say(str(e))
            return
        self._say(*_lines(file))
        for number, code in changed.items():
            print(unified_diff(f"In [{number}]", _ended(cells[number]), _ended(code)))
        if len(changed) == 1:
            [(number, code)] = changed.items()
            self._say(f"The next cell holds In [{number}] as it is proven to work.")
            self.shell.set_next_input(code)

    def _say(self, *lines: str) -> None:
        for line in lines:
            print(f"mgpu-fix: {line}")


def repaired(cells: Mapping[int, str]) -> tuple[FileReport, dict[int, str]]:
    """What a run of cells shows, and the code of those that a proven fix changes.

    Raises one of ``commands.ERRORS``.
    """
    with tempfile.TemporaryDirectory(prefix="mgpu-fix-") as folder:
        path = Path(folder, "session.ipynb")
        # A cell has the number of its prompt.
        before = [cells.get(number, "") for number in range(1, max(cells) + 1)]
        path.write_text(_notebook(before), encoding="utf-8")
        # As in the session, the working directory is where modules are found.
        program = Program("", Command("script", str(path), local=True))
        with signals_kept():
            report = commands.carried_out([Task((str(path),), program=program)])
        after: list[str] = [cell["source"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    pairs = enumerate(zip(before, after, strict=True), 1)
    return report.files[0], {number: new for number, (old, new) in pairs if new != old}


def _notebook(cells: Sequence[str]) -> str:
    parts = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    return json.dumps({"cells": parts, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


def _lines(file: FileReport) -> list[str]:
    """What is said of a session."""
    proofs = [f"[{fix.applicability.value}, {PROVEN[fix.verified_by]}]" for fix in file.fixes]
    lines = [f"{fix.code} {fix.name}: {fix.title} {proof}" for fix, proof in zip(file.fixes, proofs, strict=True)]
    lines += [f"not fixed: {item.code or item.type}: {item.reason}" for item in file.remaining]
    if file.reason:
        lines.append(f"the session's cells were run anew: {file.reason}")
    elif not lines:
        lines.append("the session's cells, run anew in a process of their own, do not show the error")
    return lines


def _ended(code: str) -> bytes:
    return (code if code.endswith("\n") else f"{code}\n").encode()
