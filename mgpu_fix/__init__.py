"""Automatic, verified repair of JAX Pallas kernels for NVIDIA GPUs (Mosaic GPU).

:func:`apply`, :func:`check` and :func:`explain` are the library; ``%load_ext mgpu_fix`` is for notebooks.

To pytest, which rewrites the asserts of packages that hold a plugin: PYTEST_DONT_REWRITE, since runs have it imported.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgpu_fix.api import CatalogueError, ObserverError, Options, UsageError, apply, check, explain
    from mgpu_fix.notebook import load_ipython_extension, unload_ipython_extension

__all__ = [
    "CatalogueError",
    "ObserverError",
    "Options",
    "UsageError",
    "__version__",
    "apply",
    "check",
    "explain",
    "load_ipython_extension",
    "unload_ipython_extension",
]

__version__ = "0.1.0"

_FROM = dict.fromkeys(__all__, "api") | dict.fromkeys(
    ("load_ipython_extension", "unload_ipython_extension"), "notebook"
)


def __getattr__(name: str) -> Any:
    # Every start of pytest, and every run, imports this package.
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
