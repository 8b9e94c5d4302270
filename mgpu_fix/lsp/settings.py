"""What the editor and pyproject.toml ask for. Only the editor can say that code may be run, and what."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mgpu_fix import config
from mgpu_fix.catalogue import Catalogue
from mgpu_fix.console import UsageError
from mgpu_fix.levels import VerifiedBy
from mgpu_fix.observe import CommandError, Program
from mgpu_fix.observe.command import parse
from mgpu_fix.observe.run import DEVICES
from mgpu_fix.problems import Options
from mgpu_fix.repair import Task
from mgpu_fix.source import Names, SourceFile


@dataclass(frozen=True)
class Settings:
    """``trust`` says that opening and saving a file runs it, or ``run``, a command in which ``${file}`` stands for it.
    Files that define ``call`` have it called with ``args``, as ``f32[128,128]``.

    The others outweigh what pyproject.toml says; empty or None they do not.
    """

    trust: bool = False
    run: str = ""
    call: str = ""
    args: tuple[str, ...] = ()
    reference: str = ""
    unsafeFixes: bool | None = None
    arch: str = ""
    timeout: float | None = None


_KINDS: dict[str, tuple[type, ...]] = {
    "trust": (bool,),
    "run": (str,),
    "call": (str,),
    "args": (list, tuple),
    "reference": (str,),
    "unsafeFixes": (bool,),
    "arch": (str,),
    "timeout": (int, float),
}


def read(given: Any, before: Settings = Settings()) -> Settings:
    """The settings ``before``, changed by those in an editor's message, which may stand under the server's name.

    Raises UsageError, with the name of what is wrong.
    """
    if isinstance(given, Mapping):
        given = given.get("mgpu-fix", given.get("settings", given))
    if not isinstance(given, Mapping):
        return before
    known = {f.name: getattr(before, f.name) for f in fields(Settings)}
    for name, value in given.items():
        # Clients add keys of their own.
        if name not in known or value is None:
            continue
        if not isinstance(value, _KINDS[name]) or (isinstance(value, bool) and bool not in _KINDS[name]):
            raise UsageError(f"the setting {name} is {value!r}, which is none")
        known[name] = _types(value) if name == "args" else value
    settings = Settings(**known)
    if settings.args and not settings.call:
        raise UsageError("the setting args needs call, the function that takes them")
    if settings.run and settings.call:
        raise UsageError("the settings run and call exclude each other: what run starts calls its kernels itself")
    if settings.arch and settings.arch not in DEVICES:
        raise UsageError(f"the setting arch is {settings.arch!r}; it is one of {', '.join(DEVICES)}")
    return settings


def _types(given: Any) -> tuple[str, ...]:
    if not all(isinstance(arg, str) for arg in given):
        raise UsageError(f"the setting args is {given!r}; it is a list like ['f32[128,128]', 'bf16[64]']")
    return tuple(given)


def asked(source: SourceFile, folder: str, settings: Settings, catalogue: Catalogue) -> tuple[Task, str]:
    """What ``apply`` would be asked in ``folder`` for a file, and the Python that gives the numbers, where that is
    another. Raises UsageError, CatalogueError."""
    file = config.find(Path(folder))
    names = {str(name).replace("-", "_") for name in (config.table(file) or {})} if file else set()
    given = config.options(file, names, folder) if file else {}
    if settings.unsafeFixes is not None:
        given["unsafe_fixes"] = settings.unsafeFixes
    given |= {name: value for name in ("arch", "timeout", "reference") if (value := getattr(settings, name))}
    # A workspace has other files than those that the call is about.
    called = settings.call if settings.call and settings.call in Names(source).members(source.tree) else ""
    try:
        options = Options(
            tuple(rule.code for rule in catalogue.named(given.get("select", ""))),
            tuple(rule.code for rule in catalogue.named(given.get("ignore", ""))),
            unsafe=bool(given.get("unsafe_fixes", False)),
            require=VerifiedBy(given.get("require", VerifiedBy.LOWERED)),
            prefer=str(given.get("prefer", "")),
            max_iterations=int(given.get("max_iterations", Options.max_iterations)),
        )
        program = Program(
            source.path,
            parse(settings.run.replace("${file}", shlex.quote(source.path))) if settings.run else None,
            called,
            settings.args if called else (),
            timeout=float(given.get("timeout", Program.timeout)),
            budget=float(given.get("interpret_budget", Program.budget)),
            **{name: given[name] for name in _AS_THEY_ARE if name in given},
        )
    except (CommandError, ValueError, TypeError) as e:
        raise UsageError(f"{'the setting run' if isinstance(e, CommandError) else file}: {e}") from None
    # A program's own paths start where it runs, and not where the server does.
    places = (str(given.get(name, "")) for name in ("golden", "oracle_python"))
    golden, oracle = (os.path.abspath(os.path.join(folder, place)) if place else "" for place in places)
    return Task((source.path,), "preview", options, program, goldens=golden), oracle


_AS_THEY_ARE = ("arch", "include_caught", "cold", "reference", "rtol", "atol")
