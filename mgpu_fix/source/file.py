"""A user's file: decoding, lines, columns, and edits that leave every byte outside them as it was."""

import ast
import bisect
import codecs
import functools
import io
import itertools
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from mgpu_fix.model import Edit, Span

#: What Python's tokenizer ends a line at. ``str.splitlines`` also splits at form feeds and the like.
_NEWLINE = re.compile(r"\r\n|\n|\r")


_COOKIE = re.compile(rb"coding[=:]")
_IGNORE = re.compile(r"#\s*mgpu-fix:\s*ignore\b(?:\[([^\]]*)\])?")


class SourceError(Exception):
    """The file cannot be edited; the message is one line, without the file's name."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class Overlap(Exception):
    """Two edits touch the same text and are not the same edit."""


class SourceFile:
    """Decoded text of a Python file, with its encoding, byte order mark and line ends kept.

    Raises SourceError if ``data`` is not text in the encoding that it declares.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.bom = data.startswith(codecs.BOM_UTF8)
        try:
            self.encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except (SyntaxError, UnicodeDecodeError) as e:
            if _COOKIE.search(data[:400]):
                raise SourceError(f"not text that Python can read: {e}") from e
            self.encoding = "utf-8"
        if self.bom:
            self.encoding = "utf-8"
        body = data[len(codecs.BOM_UTF8) :] if self.bom else data
        try:
            self.text = body.decode(self.encoding)
        except UnicodeDecodeError as e:
            line = body[: e.start].count(b"\n") + 1
            advice = "" if _COOKIE.search(data[:400]) else "; declare its encoding in a comment"
            raise SourceError(f"not {self.encoding} text at line {line}{advice}", line) from e
        if self.encode(self.text) != data:
            raise SourceError(f"its {self.encoding} bytes do not survive decoding")

    @classmethod
    def of_text(cls, path: str, text: str) -> "SourceFile":
        """The file that an editor would write of ``text``, in the encoding that it declares. Raises SourceError."""
        try:
            data = text.encode("utf-8")
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            return cls(path, data if encoding.startswith("utf-8") else text.encode(encoding))
        except (SyntaxError, UnicodeError) as e:
            raise SourceError(f"not text that Python can read: {e}") from e

    def encode(self, text: str) -> bytes:
        """Bytes of another text for this file, in its encoding and with its byte order mark."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)

    def edited(self, edits: Iterable[Edit]) -> "SourceFile":
        """This file after ``edits``. Raises Overlap, or SourceError where the result would not parse."""
        new = SourceFile(self.path, self.encode(apply_edits(self.text, edits)))
        _ = new.tree
        return new

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The file's AST. Raises SourceError on a syntax error, with its place."""
        try:
            return ast.parse(self.data, filename=self.path)
        except SyntaxError as e:
            raise SourceError(f"syntax error: {e.msg}", e.lineno, e.offset) from e
        except ValueError as e:
            raise SourceError(f"not Python: {e}") from e

    @functools.cached_property
    def starts(self) -> list[int]:
        """Character offset at which each line starts."""
        return [0, *(m.end() for m in _NEWLINE.finditer(self.text))]

    @functools.cached_property
    def newline(self) -> str:
        """The line end that this file uses most, ``\\n`` if it has none."""
        found = Counter(_NEWLINE.findall(self.text))
        return found.most_common(1)[0][0] if found else "\n"

    @functools.cached_property
    def indent(self) -> str:
        """One level of indentation, taken from the file's first indented block."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and body[0].lineno > node.lineno:
                inner, outer = self.indentation(body[0].lineno), self.indentation(node.lineno)
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :]
        return "    "

    def line(self, number: int) -> str:
        """Text of a line with its line end."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end]

    def indentation(self, number: int) -> str:
        """White space at the start of a line."""
        text = self.line(number)
        return text[: len(text) - len(text.lstrip(" \t\f"))]

    def offset(self, line: int, utf8_column: int) -> int:
        """Character offset of an ``ast`` position: 1-based line, column in UTF-8 bytes of the decoded line."""
        text = self.line(line)
        if text.isascii():
            return self.starts[line - 1] + utf8_column
        return self.starts[line - 1] + len(text.encode("utf-8")[:utf8_column].decode("utf-8", "replace"))

    def bounds(self, node: ast.AST) -> tuple[int, int]:
        """Start and end offset of a node that has a place."""
        n: ast.expr = node  # type: ignore[assignment]
        assert n.end_lineno is not None and n.end_col_offset is not None
        return self.offset(n.lineno, n.col_offset), self.offset(n.end_lineno, n.end_col_offset)

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and character column of an offset."""
        line = bisect.bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def units(self, line: int, column: int, encoding: str) -> int:
        """What of a line lies before a 1-based column, counted in code units of ``utf-8``, ``-16`` or ``-32``."""
        before = self.line(line)[: column - 1]
        width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        return len(before.encode("utf-8" if width == 1 else f"{encoding}-le", "surrogatepass")) // width

    def span(self, node: ast.AST) -> Span:
        """The node's place, as reports show it."""
        start, end = self.bounds(node)
        return Span(self.path, *self.position(start), *self.position(end))

    def segment(self, node: ast.AST) -> str:
        """Source text of a node."""
        start, end = self.bounds(node)
        return self.text[start:end]

    @functools.cached_property
    def comments(self) -> Counter[str]:
        """Every comment token, counted."""
        try:
            tokens = tokenize.tokenize(io.BytesIO(self.data).readline)
            return Counter(t.string for t in tokens if t.type == tokenize.COMMENT)
        except (tokenize.TokenError, SyntaxError):
            return Counter()

    def ignores(self, line: int, names: Collection[str]) -> bool:
        """Whether a comment ``# mgpu-fix: ignore[CODE, ...]``, or one without codes, stands in a line, or in the simple
        statement that the line is a part of."""
        if "mgpu-fix:" not in self.text or not 0 < line <= len(self.starts):
            return False
        spans = [
            range(node.lineno, (node.end_lineno or node.lineno) + 1)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt) and not hasattr(node, "body")
        ]
        lines = next((span for span in spans if line in span), range(line, line + 1))
        found = (_IGNORE.search(self.line(number)) for number in lines if number <= len(self.starts))
        chosen = [m[1] for m in found if m]
        wanted = {name.lower() for name in names}
        return any(codes is None or {c.strip().lower() for c in codes.split(",")} & wanted for codes in chosen)

    @property
    def ignored(self) -> Iterator[tuple[Span, str]]:
        """What its comments say to ignore by code or name, with the comment's place."""
        for number, start in enumerate(self.starts, 1) if "mgpu-fix:" in self.text else ():
            found = _IGNORE.search(self.line(number))
            # Not in a string.
            if found and any(found[0] in comment for comment in self.comments):
                place = Span(self.path, *self.position(start + found.start()), *self.position(start + found.end()))
                yield from ((place, name) for part in (found[1] or "").split(",") if (name := part.strip()))


def merge_edits(groups: Iterable[Sequence[Edit]]) -> list[Edit]:
    """All edits in order of place, the same edit once. Raises Overlap where two different ones touch."""
    merged = sorted({e for group in groups for e in group}, key=lambda e: (e.start, e.end))
    for a, b in itertools.pairwise(merged):
        if b.start < a.end or (b.start == a.start and b.end == a.end):
            raise Overlap(f"edits at {a.start} and {b.start} touch")
    return merged


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with every edit made. Raises Overlap."""
    out, at = [], 0
    for edit in merge_edits([list(edits)]):
        out += [text[at : edit.start], edit.new]
        at = edit.end
    return "".join([*out, text[at:]])
