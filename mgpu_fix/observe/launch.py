"""Start a command in this process as it would have been started in its own: arguments, path, ``__main__``, text."""

import importlib.util
import os
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from mgpu_fix.observe.command import Command


class Unusable(Exception):
    """What was asked for does not fit the program; the message says what to do."""


def prepare(command: Command, pytest: Callable[[Command], None]) -> tuple[types.ModuleType, Callable[[], None]]:
    """The program's main module, in place, and what runs the program; ``pytest`` runs a command's tests.

    Raises whatever finding the program raises: the parent packages of a module are imported for it.
    """
    match command.kind:
        case "module":
            # Python finds the module first, and its packages see "-m" meanwhile.
            sys.argv = ["-m", *command.argv]
            sys.path.insert(0, os.getcwd())
            spec = _spec(command.path)
            sys.argv[0] = spec.origin or command.path
            loader: Any = spec.loader
            module = _main_module(
                __file__=spec.origin, __cached__=spec.cached, __loader__=loader, __package__=spec.parent, __spec__=spec
            )
            return module, lambda: exec(loader.get_code(spec.name), module.__dict__)
        case "code":
            sys.argv = ["-c", *command.argv]
            sys.path.insert(0, "")
            module = _main_module(__package__=None, __loader__=None)
            return module, lambda: exec(compile(command.path, "<string>", "exec"), module.__dict__)
        case "pytest":
            program = os.path.join(os.path.dirname(sys.executable), "pytest")
            sys.argv = [program, *command.argv]
            sys.path.insert(0, os.getcwd() if command.local else os.path.dirname(program))
            return _main_module(__file__=program), lambda: pytest(command)
    # As the interpreter does: the arguments as they were given, the file by its absolute path.
    sys.argv = [command.path, *command.argv]
    path = os.path.abspath(command.path)
    sys.path.insert(0, os.getcwd() if command.local else os.path.dirname(os.path.realpath(path)))
    module = _main_module(__file__=path, __cached__=None)
    if path.endswith(".ipynb"):
        # What IPython gives to each notebook, for want of it.
        module.__dict__["display"] = print
    return module, lambda: exec(compile(_read(path), path, "exec"), module.__dict__)


def _main_module(**names: Any) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update({"__builtins__": __builtins__, "__spec__": None, **names})
    sys.modules["__main__"] = module
    return module


def _spec(name: str) -> ModuleSpec:
    """Where ``python -m name`` finds its code."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name, spec = f"{name}.__main__", importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as e:
        if e.name is None or not f"{name}.".startswith(f"{e.name}."):
            raise
        spec = None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise Unusable(f"there is no module {name} to run; the working directory is searched first")
    return spec


def _read(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read()
