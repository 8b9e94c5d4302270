"""``[tool.mgpu-fix]`` in pyproject.toml: options that need not be written every time."""

import fnmatch
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpu_fix.console import UsageError

#: options that name a folder or a program, as seen from the file that holds them
_PLACES = ("golden", "oracle_python", "reference")
#: options that are numbers, which true and false are not
_NUMBERS = ("rtol", "atol", "timeout", "interpret_budget", "max_iterations")


def find(folder: Path) -> Path | None:
    """The nearest pyproject.toml at or above a folder that has the table; a repository's top is as far as it goes."""
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file() and b"mgpu-fix" in file.read_bytes() and table(file) is not None:
            return file
        if (place / ".git").exists():
            return None
    return None


def table(file: Path) -> Mapping[str, Any] | None:
    """The table as it stands there. Raises UsageError where the file is not TOML."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("mgpu-fix")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{file}: {e}") from None
    if found is not None and not isinstance(found, Mapping):
        raise UsageError(f"{file}: [tool.mgpu-fix] is no table")
    return found


def options(file: Path, known: Collection[str], start: str = os.curdir) -> dict[str, Any]:
    """The options that a file sets, by the names that they have in the program, and places as seen from ``start``.
    Raises UsageError."""
    found: dict[str, Any] = {}
    known = {*known} - {"target"}
    for key, value in (table(file) or {}).items():
        name = str(key).replace("-", "_")
        if name == "targets" and isinstance(value, Mapping):
            here = os.path.relpath(file.parent, start)
            found["target"] = [f"{here}/{glob}={command}" for glob, command in value.items()]
            continue
        wrong = name in _NUMBERS and isinstance(value, bool)
        if name not in known or wrong or not isinstance(value, (str, int, float, list)):
            names = ", ".join(sorted(n.replace("_", "-") for n in {*known, "targets"}))
            what = "is no option" if name not in known else "takes a number" if wrong else "takes no table"
            raise UsageError(f"{file}: [tool.mgpu-fix] {key} {what}; there are {names}")
        found[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    for name in _PLACES:
        value = found.get(name)
        is_path = isinstance(value, str) and (name == "golden" or os.sep in value or ".py:" in value)
        if is_path:
            found[name] = os.path.relpath(file.parent / found[name], start)
    return found


def target(name: str, targets: Sequence[str]) -> str:
    """What to run for a file: the command of the first ``GLOB=COMMAND`` whose pattern it matches, seen from the working
    directory; empty without one. Raises UsageError."""
    for spec in targets:
        glob, equals, command = spec.partition("=")
        if not equals or not command.strip():
            raise UsageError(f"--target {spec!r} is not like 'kernels/*.py=pytest tests/test_kernels.py'")
        if fnmatch.fnmatch(os.path.abspath(name), os.path.abspath(glob)):
            return command
    return ""
