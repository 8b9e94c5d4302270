"""What changed between two texts: unified diffs that ``git apply`` takes, and where a line came from."""

import difflib
import functools
import itertools
import re
from collections.abc import Iterable, Sequence

from mgpu_fix.model import Edit
from mgpu_fix.source.file import SourceFile, merge_edits

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


def edits_between(old: str, new: str) -> tuple[Edit, ...]:
    """The edits that make ``new`` of ``old``: the lines that differ, without what these begin and end alike with."""
    a, b = old.splitlines(keepends=True), new.splitlines(keepends=True)
    ends = [0, *itertools.accumulate(map(len, a))]
    edits = []
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            was, becomes = "".join(a[start:end]), "".join(b[new_start:new_end])
            head = shared(was, becomes)
            tail = shared(was[head:][::-1], becomes[head:][::-1])
            # A line end of two characters stays whole.
            if was[:head].endswith("\r"):
                head -= 1
            if tail and (was[:-tail].endswith("\r") or becomes[:-tail].endswith("\r")):
                tail = 0
            edits.append(Edit(ends[start] + head, ends[end] - tail, becomes[head : len(becomes) - tail]))
    return tuple(edits)


def shared(a: Sequence[str], b: Sequence[str]) -> int:
    """How much two texts, or two lists of lines, begin alike with."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def offset_before(text: str, edits: Iterable[Edit], offset: int) -> int | None:
    """Where the character at ``offset`` of ``text`` with the edits stood before them; None if one of them made it, or
    begins there. What an edit has in common with what it replaces, at both ends, is not changed by it."""
    moved = 0
    for edit in merge_edits([list(edits)]):
        old, new = text[edit.start : edit.end], edit.new
        head = shared(old, new)
        tail = shared(old[head:][::-1], new[head:][::-1])
        start = edit.start + moved + head
        if offset < start:
            break
        if offset <= start + max(0, len(new) - head - tail - 1):
            return None
        moved += len(new) - len(old)
    return offset - moved


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
