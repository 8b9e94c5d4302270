"""Versions of JAX, and the stretch of them that code is brought across."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]

#: later than any release
NEWEST: Version = (10**6,)


def parse(text: str) -> Version:
    """``0.12.0.1`` as numbers. Raises ValueError where it does not start with one."""
    numbers = re.match(r"\d+(\.\d+)*", text)
    if not numbers:
        raise ValueError(f"{text!r} is no version")
    return tuple(int(part) for part in numbers[0].split("."))


def installed() -> Version:
    """The JAX beside mgpu-fix; without one, the newest that is known."""
    from importlib import metadata

    try:
        return parse(metadata.version("jax"))
    except metadata.PackageNotFoundError:
        return NEWEST


@dataclass(frozen=True)
class Window:
    """Code written for JAX ``since`` is to run on JAX ``to``."""

    since: Version = ()
    to: Version = NEWEST

    def accepts(self, added: str) -> bool:
        """Whether a spelling that JAX takes from release ``added`` on may be used."""
        return parse(added) <= self.to

    def crosses(self, release: str) -> bool:
        """Whether code meets what ``release`` changed for the first time in this window."""
        return self.since < parse(release) <= self.to


def before(releases: Iterable[str]) -> Version:
    """Just before the first of some releases."""
    first = min(map(parse, releases))
    return (*first[:-1], first[-1] - 1, *NEWEST)
