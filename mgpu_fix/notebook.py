"""``%load_ext mgpu_fix``."""

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Begin."""


def unload_ipython_extension(shell: Any) -> None:
    """End."""
