"""Serve patched text for a path without writing it: one table behind ``open``, ``open_code`` and ``stat``.

Import, runpy, pytest, linecache and inspect all read source through one of the three, so they agree with each other
while the disk still holds the old text. Byte code is neither used nor written.
"""

import _io
import builtins
import io
import os
import sys
import tokenize
from collections.abc import Mapping
from typing import Any


def install(table: Mapping[str, bytes]) -> None:
    """Serve ``table`` (path to bytes) from now on in this process; reading only, writing goes to the disk."""
    served = {os.path.realpath(path): data for path, data in table.items()}
    sys.dont_write_bytecode = True
    if not served:
        return
    real_open, real_open_code, real_stat = io.open, io.open_code, os.stat

    def lookup(path: Any) -> bytes | None:
        if isinstance(path, int):
            return None
        try:
            return served.get(os.path.realpath(os.fsdecode(path)))
        except (TypeError, ValueError, OSError):
            return None

    def open_(  # the signature of open()
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        data = None if set(mode) & set("wax+") else lookup(file)
        if data is None:
            return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        return io.BytesIO(data) if "b" in mode else io.TextIOWrapper(io.BytesIO(data), encoding, errors, newline)

    def open_code(path: Any) -> Any:
        data = lookup(path)
        return real_open_code(path) if data is None else io.BytesIO(data)

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        result = real_stat(path, *args, **kwargs)
        data = lookup(path)
        if data is None:
            return result
        # Another size and time than the disk's, so that no existing .pyc matches.
        fields = list(result)
        fields[6], fields[8] = len(data), fields[8] + 1
        # A sequence makes the first ten only.
        rest = {name: getattr(result, name) for name in dir(result) if name.startswith("st_")}
        rest |= {"st_mtime": float(fields[8]), "st_mtime_ns": fields[8] * 10**9}
        return os.stat_result(fields, rest)

    for module, name, value in [
        (builtins, "open", open_),
        (io, "open", open_),
        (_io, "open_code", open_code),
        (io, "open_code", open_code),
        (tokenize, "_builtin_open", open_),
        (os, "stat", stat),
    ]:
        setattr(module, name, value)
    # importlib's bootstrap calls the platform module directly.
    platform_module = sys.modules.get("posix") or sys.modules.get("nt")
    setattr(platform_module, "stat", stat)  # noqa: B010
