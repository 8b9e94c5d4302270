"""A command line that runs Python or pytest, taken apart as the shell and the interpreter would. Runs nothing."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

_PYTHON = re.compile(r"python(\d+(?:\.\d+)?)?(?:\.exe)?")
_PYTEST = re.compile(r"(?:pytest|py\.test)(?:\.exe)?")
#: options that change nothing in a process that runs already, and what is to be run
_OPTION = re.compile(r"-([uBqP]*)(?:([mc])(.*))?", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class CommandError(Exception):
    """A command that cannot be run under the probe; the message is one line."""


@dataclass(frozen=True)
class Command:
    """What a command line runs. ``kind`` is script, module, code or pytest, and ``path`` accordingly a file, a module's
    name, the code itself, or nothing. ``local`` says that the working directory is on the path of pytest, as it is for
    ``python -m pytest``, or of a script in place of its own; ``environment`` holds the assignments before the command.
    ``only`` are node ids; where there are any, no other tests are run of what pytest collects."""

    kind: str
    path: str = ""
    argv: tuple[str, ...] = ()
    local: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()


def parse(text: str) -> Command:
    """What ``text`` runs. Raises CommandError."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise CommandError(f"{text!r} cannot be read: {str(e).lower()}") from None
    environment = []
    while words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
        environment.append((assigned[1], assigned[2]))
        words = words[1:]
    if not words:
        raise CommandError(f"{text!r} names no command")
    return replace(_command(words[0], iter(words[1:])), environment=tuple(environment))


def _command(program: str, rest: Iterator[str]) -> Command:
    name = os.path.basename(program)
    python, pytest = _PYTHON.fullmatch(name), _PYTEST.fullmatch(name)
    if not python and not pytest:
        raise CommandError(f"{program!r} is not known; a program is run by python or pytest")
    _check_environment(program)
    if pytest:
        return Command("pytest", argv=tuple(rest))
    here = ".".join(map(str, sys.version_info[:2]))
    if python and python[1] and not f"{here}.".startswith(f"{python[1]}."):
        raise CommandError(f"{program} is not the Python that mgpu-fix is installed in, which is {here}")
    return _python(program, rest)


def _check_environment(program: str) -> None:
    """A bare name is the environment that mgpu-fix is installed in; a path must lead there."""
    folder = os.path.dirname(program)
    if not folder:
        return
    if not os.path.exists(program):
        raise CommandError(f"there is no {program}")
    if not os.path.samefile(folder, os.path.dirname(sys.executable)):
        raise CommandError(f"{program} belongs to another environment; mgpu-fix runs programs in its own, {sys.prefix}")


def _python(program: str, rest: Iterator[str]) -> Command:
    for word in rest:
        if not word.startswith("-"):
            return Command("script", word, tuple(rest))
        option = _OPTION.fullmatch(word)
        if option is None:
            raise CommandError(f"{program} {word} cannot be taken over; leave it out")
        if option[2]:
            target = option[3] or next(rest, "")
            if not target:
                raise CommandError(f"{program} {word} names nothing to run")
            kind = "code" if option[2] == "c" else "pytest" if target == "pytest" else "module"
            return Command(kind, "" if kind == "pytest" else target, tuple(rest), local=kind == "pytest")
    raise CommandError(f"{program} needs a script, -m MODULE or -c CODE")
