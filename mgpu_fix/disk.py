"""Users' files on the disk: read whole, written whole or not at all."""

import contextlib
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mgpu_fix.source import Document, SourceError, SourceFile
from mgpu_fix.source.document import PythonFile
from mgpu_fix.source.jupyter import notebook
from mgpu_fix.source.markdown import markdown

_KINDS: Mapping[str, Callable[[SourceFile], Document]] = {".ipynb": notebook, ".md": markdown}


class Blocked(Exception):
    """A file that cannot be worked on; the message is the reason."""


def read_bytes(name: str) -> bytes:
    """A file's bytes. Raises Blocked."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode) and not os.path.isdir(name):
            raise Blocked("it is not a regular file")
        return Path(name).read_bytes()
    except IsADirectoryError:
        raise Blocked("it is a directory; name the Python files in it") from None
    except FileNotFoundError:
        raise Blocked("there is no such file") from None
    except OSError as e:
        raise Blocked(f"it cannot be read: {e.strerror}") from None


def opened(name: str) -> Document:
    """A file with its Python parsed. Raises Blocked."""
    return parsed(name, read_bytes(name))


def parsed(name: str, data: bytes) -> Document:
    """The file of that name and those bytes, as its name tells what it is. Raises Blocked."""
    try:
        return _KINDS.get(os.path.splitext(name)[1], PythonFile)(SourceFile(os.path.realpath(name), data))
    except SourceError as e:
        place = f" (line {e.line})" if e.line else ""
        raise Blocked(f"{e}{place}") from None


def shown_path(path: str) -> str:
    """A path as reports and patches name it: relative where it lies under the working directory."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def write_all(changes: Mapping[str, tuple[SourceFile, SourceFile]]) -> dict[str, str]:
    """Write the second text of every pair over the first, all or none.

    Returns, by name, why nothing was written; empty where all was.
    """
    if changes and threading.current_thread() is threading.main_thread():
        # Whoever interrupts now is too late: the work is done, and a half of it would be worse than all.
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
    written: list[SourceFile] = []
    for name, (_, after) in changes.items():
        try:
            _check_writable(after.path)
        except (Blocked, OSError) as e:
            return _refused(changes, name, e)
    for name, (before, after) in changes.items():
        try:
            _replace(after.path, after.data, before.data)
            written.append(before)
        except (Blocked, OSError) as e:
            for old in written:
                _replace(old.path, old.data)
            return _refused(changes, name, e)
    return {}


def write_new(path: Path, data: bytes) -> str:
    """Write a file of ours, whole or not at all; returns why it could not be written, empty where it was."""
    # What a link leads to is what is written.
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _check_writable(str(path))
        _replace(str(path), data)
    except (Blocked, OSError) as e:
        return f"{shown_path(str(path))}: {e if isinstance(e, Blocked) else f'it cannot be written: {e.strerror}'}"
    return ""


def _refused(names: Iterable[str], name: str, error: Blocked | OSError) -> dict[str, str]:
    reason = str(error) if isinstance(error, Blocked) else f"it cannot be written: {error.strerror}"
    return {other: reason if other == name else f"{name} could not be written, so nothing was" for other in names}


def _check_writable(path: str) -> None:
    if "site-packages" in Path(path).parts or "dist-packages" in Path(path).parts:
        raise Blocked("it belongs to an installed package, which mgpu-fix never edits")
    # Root may write everything, and is not meant to.
    for what, place in (("it", path), ("its folder", os.path.dirname(path))):
        if not os.access(place, os.W_OK) or not os.stat(place).st_mode & 0o222:
            raise Blocked(f"{what} is read-only; nothing was written, --diff shows the fix")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _replace(path: str, data: bytes, expected: bytes | None = None) -> None:
    """Put ``data`` in place of a file in one step, keeping its mode: readers see the old text or the new.

    Raises Blocked where the file no longer holds what is ``expected`` of it.
    """
    # A new file gets what is usual, an old one keeps what it has.
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".mgpu-fix-")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(temporary, mode)
        if expected is not None and Path(path).read_bytes() != expected:
            raise Blocked("it changed on disk meanwhile; nothing was written, run mgpu-fix again")
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
