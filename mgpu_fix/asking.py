"""``--interactive``: every fix is shown with its patch, and made only if the answer is yes."""

import sys
from collections.abc import Callable
from typing import TextIO

from mgpu_fix.console import UsageError, is_terminal, say
from mgpu_fix.disk import shown_path
from mgpu_fix.model import Fix
from mgpu_fix.report.text import TextReport

_QUESTION = "Make this change? y(es), n(o), a(ll that come), q(uit): "


class Asker:
    """Asks about fixes, in order. ``read`` gives one line of the answer, empty at the end of input."""

    def __init__(self, text: TextReport, read: Callable[[], str], stream: TextIO | None = None) -> None:
        self.text, self.read, self.stream = text, read, stream
        #: the answer to all that come, once it was given
        self._rest: bool | None = None

    def __call__(self, fix: Fix) -> bool:
        """Whether to make ``fix``."""
        if self._rest is not None:
            return self._rest
        say(f"{shown_path(fix.path)}\n{self.text.one(fix)}", self.stream)
        while True:
            say(_QUESTION, self.stream)
            line = self.read()
            answer = line.strip().lower()[:1]
            if answer in ("a", "q") or not line:
                self._rest = answer == "a"
                return self._rest
            if answer in ("y", "n"):
                return answer == "y"


def terminal(text: TextReport, stream: TextIO) -> Asker:
    """An asker for whoever sits at the terminal. Raises UsageError where nobody does."""
    if not is_terminal(sys.stdin):
        raise UsageError("--interactive asks at a terminal, and standard input is none")
    return Asker(text, sys.stdin.readline, stream)
