"""Failing tests, run again under the probe, and what is to be said of their kernels. Writes nothing."""

import contextlib
import functools
import os
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mgpu_fix.catalogue import CatalogueError, load
from mgpu_fix.model import Failure, Report
from mgpu_fix.observe import Command, Observer, ObserverError, Program
from mgpu_fix.observe.run import uses_pallas
from mgpu_fix.repair import Task, carry_out
from mgpu_fix.report.text import TextReport
from mgpu_fix.walk import SKIPPED, speaks_of_pallas

#: exit status of a pytest that collects nothing
_NO_TESTS = 5

_uses_pallas = functools.cache(uses_pallas)


@dataclass(frozen=True)
class Told:
    """What is said of one failing test, and the same for machines: names and values. ``files`` can be fixed."""

    text: str
    properties: tuple[tuple[str, str], ...]
    files: tuple[str, ...] = ()


class Repairs:
    """Repairs the kernels of failing tests, of a pytest that was so ``invoked`` and has its root at ``root``."""

    def __init__(self, invoked: pytest.Config.InvocationParams, root: Path) -> None:
        here = os.getcwd() in map(os.path.abspath, sys.path)
        self.command = Command("pytest", argv=tuple(map(str, invoked.args)), local=here)
        self.folder = invoked.dir
        self.root = root
        self.observer = Observer()
        self._known: dict[tuple[str, str], tuple[str, Told | None]] = {}

    def close(self) -> None:
        """End what runs."""
        self.observer.close()

    @property
    def command_to_apply(self) -> str:
        """What writes all that was found; empty where nothing was."""
        files = sorted({file for _, told in self._known.values() if told for file in told.files})
        python = ["python", "-m"] if self.command.local else []
        tests = shlex.join([*python, "pytest", *(arg for arg in self.command.argv if arg != "--mgpu-fix")])
        return f"mgpu-fix apply --run {shlex.quote(tests)} {shlex.join(files)}" if files else ""

    def of(self, nodeid: str, message: str) -> Told | None:
        """What to say of a test that fails with ``message``; None where its kernels have no part in it."""
        file, _, test = nodeid.partition("::")
        if _uses_pallas(self.root / file) is False:
            return None
        # One test fails in the same way with all its parameters, as a rule; each would take seconds.
        key = (f"{file}::{test.partition('[')[0]}", re.sub(r"\d+", "#", message))
        if key not in self._known:
            # The filters of the test's own warnings are none of ours.
            with warnings.catch_warnings(action="ignore"), contextlib.chdir(self.folder):
                self._known[key] = (nodeid, self._found(nodeid))
            return self._known[key][1]
        first, told = self._known[key]
        if told is None:
            return None
        text = f"It fails as {first} does. Of that this was found, and it was not run for this test:\n{told.text}"
        unproven = (item for item in told.properties if item[0] != "mgpu_fix.verified_by")
        return Told(text, (*unproven, ("mgpu_fix.same_as", first)))

    def _found(self, nodeid: str) -> Told | None:
        program = Program("", replace(self.command, only=(nodeid,)))
        earlier = self.observer.runs
        try:
            seen = self.observer.observe(program)
            if not seen.failures:
                unseen = seen.status in ("timeout", "crashed", "blocked") or seen.exit_code == _NO_TESTS
                return _excuse(seen.reason) if unseen else None
            files = self._editable(seen.loaded, seen.failures)
            if not files:
                return None
            report = carry_out(Task(files, "preview", program=program), self.observer, load(), lambda text: None)
        except (ObserverError, CatalogueError) as e:
            return _excuse(str(e))
        return _told(replace(report, runs=report.runs - earlier))

    def _editable(self, loaded: Sequence[str], failures: Sequence[Failure]) -> tuple[str, ...]:
        """Files of the project's own that hold the kernels."""
        blamed = {failure.span.path for failure in failures if failure.span}
        found = []
        for path in sorted({*loaded, *blamed}):
            inside = os.path.relpath(path, os.path.realpath(self.root)).split(os.sep)
            if inside[0] == os.pardir or SKIPPED & {*inside} or not os.path.isfile(path):
                continue
            if path in blamed or speaks_of_pallas(path):
                found.append(path)
        return tuple(found)


def _excuse(reason: str) -> Told:
    return Told(f"mgpu-fix cannot see what this test does: {reason}", (("mgpu_fix.error", reason),))


def _told(report: Report) -> Told | None:
    """The files of a report that something is to be said of."""
    files = tuple(replace(file, output="") for file in report.files if file.fixes or file.remaining)
    if not files:
        return None
    found = [code for file in files for code in (*(f.code for f in file.fixes), *(r.code for r in file.remaining))]
    codes = tuple(dict.fromkeys(code for code in found if code))
    text = TextReport(applied=False).render(replace(report, files=files))
    for rule in load().named(",".join(codes)):
        text += f"\n{rule.code} {rule.name}: {rule.summary}\n\n{rule.meaning}\n\n"
        text += f"mgpu-fix explain {rule.code} says more.\n"
    levels = {fix.verified_by.value for file in files for fix in file.fixes if fix.verified_by}
    properties = {
        "mgpu_fix.rule": " ".join(codes),
        "mgpu_fix.status": " ".join(dict.fromkeys(file.status for file in files)),
        "mgpu_fix.verified_by": " ".join(sorted(levels)),
        "mgpu_fix.diff": "".join(file.diff for file in files),
    }
    shown = tuple((name, _plain(value)) for name, value in properties.items() if value)
    return Told(_plain(text).rstrip("\n"), shown, tuple(file.path for file in files if file.diff))


def _plain(text: str) -> str:
    """Text that can be shown and written anywhere; the bytes of a file that is not UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
