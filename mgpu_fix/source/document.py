"""A file that holds Python among other things: the program that its pieces make, and the way back into the file.

A Python file is its own program. Pure.
"""

import ast
import bisect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgpu_fix.model import Edit
from mgpu_fix.source.file import SourceError, SourceFile, apply_edits

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)")
#: stands before each piece in the program
_MARK = re.compile(r"^# mgpu-fix: (cell \d+|\d+)(?:\r\n|\n|\r)", re.M)


@dataclass(frozen=True)
class Piece:
    """A run of Python in a file: what lies there, by characters, and its ``code``. ``line`` is that of each line of the
    code, in the file, ``write`` gives the file's text for other code, ``label`` is what people call the piece."""

    start: int
    end: int
    code: str
    line: Callable[[int], int]
    write: Callable[[str], str]
    label: str = ""


class Document:
    """A file on the disk and its Python as one ``program``, which has the file's path.

    ``left_out`` says which pieces are not in it, and why, ``head`` is a line of it that the file takes for granted.
    ``runs`` says that the program is meant to be run.
    Raises SourceError where the pieces make no program.
    """

    def __init__(
        self,
        file: SourceFile,
        pieces: Sequence[Piece],
        left_out: Sequence[str] = (),
        head: str = "",
        runs: bool = True,
    ) -> None:
        self.file, self.pieces, self.left_out, self.runs = file, pieces, tuple(left_out), runs
        # That of the code, which in a notebook is not that of the file.
        newline = SourceFile(file.path, "".join(piece.code for piece in pieces).encode()).newline
        lines = [f"{head}{newline}"] if head else []
        #: what stands before the first piece, and what follows the code of each: the end of its last line, empty lines
        self._head, self._tails = "", list[str]()
        #: line of the program at which the code of each begins
        self._starts: list[int] = []
        for number, piece in enumerate(pieces):
            # Where it can, a line has the same number in the program and in the file.
            empty = [newline] * max(piece.line(0) - 2 - len(lines), 0)
            if number:
                self._tails[-1] += "".join(empty)
            else:
                self._head = "".join((*lines, *empty))
            lines += [*empty, f"# mgpu-fix: {piece.label or number}{newline}"]
            self._starts.append(len(lines) + 1)
            end = "" if _ends_line(piece.code) else newline
            lines += _LINE.findall(piece.code + end)
            self._tails.append(end)
        self.program = SourceFile(file.path, "".join(lines).encode())
        _ = self.program.tree

    def written(self, program: SourceFile) -> SourceFile:
        """The file with another program in it; what did not change keeps its bytes.

        Raises SourceError where a change reaches over pieces.
        """
        if program.data == self.program.data:
            return self.file
        head, *found = _MARK.split(program.text)
        if head != self._head or found[::2] != [p.label or str(n) for n, p in enumerate(self.pieces)]:
            raise SourceError("the change does not lie in one cell")
        edits = []
        for piece, tail, text in zip(self.pieces, self._tails, found[1::2], strict=True):
            if not text.endswith(tail):
                raise SourceError("the change reaches over the end of a cell")
            code = text.removesuffix(tail)
            if code != piece.code:
                edits.append(Edit(piece.start, piece.end, piece.write(code)))
        return SourceFile(self.file.path, self.file.encode(apply_edits(self.file.text, edits)))

    def place(self, line: int) -> tuple[int, str]:
        """Where a line of the program as it is now lies in the file, and what its piece is called."""
        number = max(bisect.bisect_right(self._starts, line) - 1, 0)
        piece = self.pieces[number]
        return piece.line(max(line - self._starts[number], 0)), piece.label


class PythonFile(Document):
    """A file that is its own program."""

    def __init__(self, file: SourceFile) -> None:
        self.file = self.program = file
        self.pieces, self.left_out, self.runs = (), (), True
        _ = file.tree

    def written(self, program: SourceFile) -> SourceFile:
        """The program."""
        return program

    def place(self, line: int) -> tuple[int, str]:
        """The line itself."""
        return line, ""


def fault(code: str, first: bool) -> str:
    """Why code cannot be a piece of a program, of which it is the ``first`` or not; empty if it can."""
    try:
        tree = ast.parse(code)
        compile(tree, "<piece>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as e:
        return f"it is not Python that runs by itself: {e.msg if isinstance(e, SyntaxError) else e}"
    if not first and any(isinstance(s, ast.ImportFrom) and s.module == "__future__" for s in tree.body):
        return "what it imports from __future__ would come too late"
    return ""


def _ends_line(code: str) -> bool:
    return code.endswith(("\n", "\r"))
