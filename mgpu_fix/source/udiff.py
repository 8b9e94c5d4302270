"""What changed between two texts: unified diffs that ``git apply`` takes, and where a line came from."""

import difflib
import functools
import re
from collections.abc import Sequence

from mgpu_fix.source.file import SourceFile

_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """The change of one file with ``a/`` and ``b/`` headers; empty if there is none.

    Lines end at ``\\n`` alone, as in git, so a ``\\r`` stays part of its line. The text is decoded with
    ``surrogateescape``, so that writing it with the same error handler gives the file's own bytes.
    """
    if before == after:
        return ""
    a, b = (_LINE.findall(data.decode("utf-8", "surrogateescape")) for data in (before, after))
    name = path.lstrip("/")
    out = []
    for line in difflib.unified_diff(a, b, _quoted(f"a/{name}"), _quoted(f"b/{name}")):
        out.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(out)


def _quoted(name: str) -> str:
    """A name as git writes it: in quotes where it holds what would end it."""
    if not re.search(r'[\x00-\x1f\x7f"\\]', name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\{ord(m[0]):03o}", escaped) + '"'


def line_before(original: SourceFile, now: SourceFile, line: int, changed: bool = False) -> int | None:
    """The line of ``original`` that became line ``line`` of ``now``; None if an edit made it.

    With ``changed`` a line that was only changed counts as the one that it was.
    """
    if original.data == now.data:
        return line
    for tag, start, end, new_start, new_end in _opcodes(original.text, now.text):
        kept = tag == "equal" or (changed and tag == "replace" and end - start == new_end - new_start)
        if kept and new_start < line <= new_end:
            return start + line - new_start
    return None


@functools.lru_cache(maxsize=8)
def _opcodes(a: str, b: str) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, a.splitlines(), b.splitlines(), autojunk=False).get_opcodes()
