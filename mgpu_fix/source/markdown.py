"""Python in Markdown: fenced blocks, and MyST's code cells."""

import os
import re

from mgpu_fix.source.document import Document, Piece, fault
from mgpu_fix.source.file import SourceFile

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\r\n]*)(\r\n|\n|\r|\Z)")
#: what follows a fence's marks where Python is in it
_PYTHON = re.compile(
    r"\s*(?:\{code-cell\}\s*(?:i?python3?)?\s*|(?:\{code-block\}\s*)?(?:i?python3?|py)(?:[\s{,].*)?)", re.I
)
#: arguments and parameters that a sketch leaves out, and what stands for them in the program
_ELLIPSIS = re.compile(r"(?<=[(,\s])\.\.\.(?=\s*[,)])")
_STANDS_FOR = "*_0"
_USUAL = "from jax.experimental import pallas as pl; from jax.experimental.pallas import mosaic_gpu as plgpu"
_OPTION = re.compile(r"[ \t]*:[\w-]+:")


def markdown(file: SourceFile) -> Document:
    """The blocks of Python in their order; those that are no complete Python are left out, as sketches are."""
    pieces: list[Piece] = []
    left_out: list[str] = []
    number, last = 1, len(file.starts)
    while number <= last:
        opened = _FENCE.fullmatch(file.line(number))
        number += 1
        # Backticks after backticks are code in a line of prose.
        if not opened or (opened[1][0] == "`" and "`" in opened[2]):
            continue
        first = number
        while number <= last and not _closes(file.line(number), opened[1]):
            number += 1
        if _PYTHON.fullmatch(opened[2]):
            _add(file, first, number, pieces, left_out)
        number += 1
    return Document(file, pieces, left_out, _imports(file, pieces), runs=False)


def _imports(file: SourceFile, pieces: list[Piece]) -> str:
    """What a page that speaks of ``mosaic_gpu`` takes for imported, if no block of it says what ``plgpu`` is."""
    bound = any(re.search(r"\bas plgpu\b|\bplgpu *=", piece.code) for piece in pieces)
    return _USUAL if "mosaic_gpu" in file.text and not bound else ""


def _closes(line: str, marks: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(marks) and not bare.strip(marks[0])


def _add(file: SourceFile, first: int, end: int, pieces: list[Piece], left_out: list[str]) -> None:
    """The block of lines from ``first`` up to ``end``, which is its closing fence."""
    lines = [file.line(n) for n in range(first, min(end, len(file.starts) + 1))]
    skipped = _options(lines)
    first, lines = first + skipped, lines[skipped:]
    # That of the list which the block belongs to, or of the function that it shows a part of.
    blanks = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    indent = os.path.commonprefix(blanks)  # noqa: RUF071
    code = "".join(line.removeprefix(indent) if line.strip() else line for line in lines)
    why = fault(code, not pieces)
    elided = bool(why and _ELLIPSIS.search(code) and _STANDS_FOR not in code)
    if elided:
        code = _ELLIPSIS.sub(_STANDS_FOR, code)
        why = fault(code, not pieces)
    if why:
        left_out.append(f"the block at line {first}: {why}")
        return

    def write(changed: str) -> str:
        rows = re.findall(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", changed)
        text = "".join(indent + row if row.strip() else row for row in rows)
        return text.replace(_STANDS_FOR, "...") if elided else text

    start = file.starts[first - 1] if first <= len(file.starts) else len(file.text)
    pieces.append(Piece(start, start + len("".join(lines)), code, lambda index: first + index, write))


def _options(lines: list[str]) -> int:
    """How many lines at the top are options of a MyST directive."""
    if lines and lines[0].strip() == "---":
        closing = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
        return closing + 1 if closing else 0
    return next((i for i, line in enumerate(lines) if not _OPTION.match(line)), len(lines))
