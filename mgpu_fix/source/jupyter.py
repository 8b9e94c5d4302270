"""Code cells of a Jupyter notebook, by their places in the file, so that writing one leaves every other byte alone."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mgpu_fix.source.document import Document, Piece, fault
from mgpu_fix.source.file import SourceError, SourceFile

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
#: lines that IPython takes and Python does not: magics, commands of the shell, questions
_IPYTHON = re.compile(r"([ \t]*)([%!?].*|[\w.%]+\?{1,2})(\r?\n?)")
#: cells of these magics hold Python, which runs in the notebook's own names
_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun")
#: what stands for such a line in the program
_STANDS_FOR = "pass  # mgpu-fix: "
_STANDING = re.compile(rf"^([ \t]*){_STANDS_FOR}(.*)", re.M)
#: escapes of what is no ASCII
_ESCAPED = re.compile(r"\\u(?!00[0-7])")


@dataclass(frozen=True)
class _Value:
    """A value in the JSON text and where it stands."""

    value: Any
    start: int
    end: int


def notebook(file: SourceFile) -> Document:
    """The code cells in their order. Raises SourceError where it is no notebook."""
    text = file.text
    try:
        whole = json.loads(text)
    except ValueError as e:
        raise SourceError(f"not JSON: {e}") from None
    if not isinstance(whole, dict) or whole.get("nbformat") != 4 or not _are_cells(whole.get("cells")):
        raise SourceError("not a notebook of format 4")
    language = _language(whole.get("metadata"))
    if language != "python":
        return Document(file, [], [f"all of it: its cells are {language}"])
    ascii_only = text.isascii() and bool(_ESCAPED.search(text))
    cells = dict(_members(text, _after_space(text, 0)))["cells"]
    pieces: list[Piece] = []
    left_out: list[str] = []
    for number, cell in enumerate(_elements(text, cells.start), 1):
        if cell.value["cell_type"] != "code":
            continue
        label, source = f"cell {number}", dict(_members(text, cell.start))["source"]
        code = _python(_joined(source.value))
        why = fault(code, not pieces) if code is not None else "its magic says that it is not Python"
        if why or code is None:
            left_out.append(f"{label}: {why}")
        elif code.strip():
            pieces.append(_piece(file, source, code, label, ascii_only))
    return Document(file, pieces, left_out)


def _are_cells(found: Any) -> bool:
    """As far as anything here depends on it."""
    return isinstance(found, list) and all(
        isinstance(cell, dict) and isinstance(cell.get("cell_type"), str) and _is_source(cell.get("source"))
        for cell in found
    )


def _is_source(found: Any) -> bool:
    return isinstance(found, str) or (isinstance(found, list) and all(isinstance(line, str) for line in found))


def _language(metadata: Any) -> str:
    """The language of the kernel, or of what was last run; Python's where neither says one."""
    for part, name in (("kernelspec", "language"), ("language_info", "name")):
        said = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(said, dict) and isinstance(said.get(name), str):
            return str(said[name]).lower()
    return "python"


def _joined(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def _piece(file: SourceFile, source: _Value, code: str, label: str, ascii_only: bool) -> Piece:
    text = file.text
    lines = [] if isinstance(source.value, str) else list(_elements(text, source.start))
    values = [line.value for line in lines]
    # nbformat splits where str.splitlines does, others at line feeds alone.
    split = _split_as_nbformat if values == _split_as_nbformat(_joined(values)) else _rows
    aligned = values == split(_joined(values))
    first = file.position(source.start)[0]

    def line(index: int) -> int:
        return file.position(lines[index].start)[0] if aligned and index < len(lines) else first

    def write(changed: str) -> str:
        plain = _STANDING.sub(r"\1\2", changed)
        if isinstance(source.value, str):
            return json.dumps(plain, ensure_ascii=ascii_only)
        # Lines that stay keep their spelling, too.
        spelt = {line.value: text[line.start : line.end] for line in lines}
        before, after = text[source.start : lines[0].start], text[lines[-1].end : source.end]
        between = text[lines[0].end : lines[1].start] if len(lines) > 1 else f",{before[1:]}"
        kept = split(plain)
        return before + between.join(spelt.get(k) or json.dumps(k, ensure_ascii=ascii_only) for k in kept) + after

    return Piece(source.start, source.end, code, line, write, label)


def _python(source: str) -> str | None:
    """A cell's code with what only IPython understands out of the way; None where a magic takes all of it."""
    lines = _rows(source)
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is not None and lines[first].startswith("%%"):
        if lines[first].split()[0] not in _PYTHON_CELLS:
            return None
        lines[first] = _STANDS_FOR + lines[first]
    for _ in range(len(lines)):
        wrong = _wrong_line("".join(lines))
        found = _IPYTHON.fullmatch(lines[wrong - 1]) if wrong and wrong <= len(lines) else None
        if not found or not wrong:
            break
        lines[wrong - 1] = f"{found[1]}{_STANDS_FOR}{found[2]}{found[3]}"
    return "".join(lines)


def _split_as_nbformat(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _rows(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def _wrong_line(code: str) -> int | None:
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as e:
        return e.lineno
    except (ValueError, RecursionError):
        pass
    return None


def _members(text: str, at: int) -> Iterator[tuple[str, _Value]]:
    """Names and values of the object that begins at ``at``, in a text that is JSON."""
    at = _after_space(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        # Past the colon.
        at = _after_space(text, _after_space(text, at) + 1)
        value, end = _DECODER.raw_decode(text, at)
        yield name, _Value(value, at, end)
        at = _next(text, end)


def _elements(text: str, at: int) -> Iterator[_Value]:
    """Values of the array that begins at ``at``."""
    at = _after_space(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        yield _Value(value, at, end)
        at = _next(text, end)


def _next(text: str, at: int) -> int:
    at = _after_space(text, at)
    return _after_space(text, at + 1) if text[at] == "," else at


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found
    return found.end()
