"""What people see: text on standard output and standard error, and a line that says what is going on."""

import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO


class UsageError(Exception):
    """Options that do not fit together or name nothing; the message is one line."""


class OutputError(Exception):
    """The report cannot be written, whatever was done to the files."""


@dataclass(frozen=True)
class Output:
    """How a report is told: ``format`` is text or one for machines, ``colour`` auto, always or never, ``patch`` prints
    the diff alone to standard output and everything else to standard error, ``file`` takes the report."""

    format: str = "text"
    colour: str = "auto"
    patch: bool = False
    quiet: bool = False
    verbose: bool = False
    file: str = ""

    @property
    def text(self) -> bool:
        """Whether the report is for people."""
        return self.format == "text"


def check_output(output: Output, files: Iterable[str]) -> None:
    """Raises UsageError where the report cannot go to its file, or would take the place of one that is worked on."""
    if not output.file:
        return
    if os.path.realpath(output.file) in {os.path.realpath(name) for name in files}:
        raise UsageError(f"--output-file: {output.file} is one of the files to work on")
    folder = os.path.dirname(os.path.abspath(output.file))
    place = output.file if os.path.exists(output.file) else folder
    if os.path.isdir(output.file) or not os.path.isdir(folder) or not os.access(place, os.W_OK):
        raise UsageError(f"--output-file: {output.file} cannot be written")


def say(text: str, stream: TextIO | None = None, errors: str = "replace") -> None:
    """Write UTF-8, whatever the terminal's encoding. A patch of a file that is not UTF-8 is that file's own bytes."""
    stream = stream or sys.stdout
    if stream is None or not text:
        return
    try:
        stream.flush()
        stream.buffer.write(text.encode("utf-8", errors))
        stream.buffer.flush()
    except BrokenPipeError:
        # Whoever read it has seen enough; the exit code still tells what was done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as e:
        raise OutputError(f"the report cannot be written: {e.strerror}") from e


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


class Progress:
    """One line on a terminal that says what is going on, once it takes more than a second."""

    def __init__(self, on: bool) -> None:
        self.on, self.text = on, ""
        self._timer: threading.Timer | None = None
        self._shown = False

    def say(self, text: str) -> None:
        """What is going on now."""
        self.text = text
        if self._shown:
            self._show()

    def _show(self) -> None:
        self._shown = True
        sys.stderr.write(f"\r\x1b[K{self.text} …")
        sys.stderr.flush()

    def __enter__(self) -> "Progress":
        if self.on:
            self._timer = threading.Timer(1.0, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
