"""LibCST edits of the smallest run of whole statements that holds them.

``ast`` says where, LibCST says how: a whole 10,000-line file takes LibCST seconds, its slices milliseconds.
"""

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from mgpu_fix.model import Edit
from mgpu_fix.source.file import SourceError, SourceFile
from mgpu_fix.source.udiff import shared

Change: TypeAlias = Callable[[Any], Any]


class Splice:
    """A run of sibling statements as LibCST sees them, and changes to nodes in it.

    ``first`` and ``last`` are statements of one block; ``comments`` takes in those that end what is in them. Changes
    are given per ``ast`` node with :meth:`on`; they run children first, each on the node as its own children left it,
    and return what LibCST transformers return: a node, ``cst.RemoveFromParent()`` or a ``cst.FlattenSentinel``. Raises
    SourceError where the slice does not round-trip.
    """

    def __init__(
        self, source: SourceFile, first: ast.stmt, last: ast.stmt | None = None, comments: bool = False
    ) -> None:
        self.source = source
        last = last or first
        decorators = getattr(first, "decorator_list", [])
        self._line = min([first.lineno, *(d.lineno for d in decorators)])
        self._start = source.starts[self._line - 1]
        end_line = cast(int, last.end_lineno)
        if comments:
            end_line = self._with_comments(end_line, len(source.indentation(self._line)))
        self._end = source.starts[end_line] if end_line < len(source.starts) else len(source.text)
        slice_ = source.text[self._start : self._end]
        # LibCST takes its defaults from the first block and line end that it sees; the file's own go first.
        self._prefix = f"if True:{source.newline}{source.indent}pass{source.newline}"
        if source.indentation(self._line):
            self._prefix += f"if True:{source.newline}"
        try:
            module = cst.parse_module(self._prefix + slice_)
        except (cst.ParserSyntaxError, UnicodeError) as e:
            raise SourceError(_unreadable(slice_, self._line, end_line)) from e
        if module.code != self._prefix + slice_:
            raise SourceError(_unreadable(slice_, self._line, end_line))
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self._changes: dict[int, list[Change]] = {}
        self._index: dict[tuple[int, int, int, int], list[cst.CSTNode]] = {}
        for node, at in self._wrapper.resolve(PositionProvider).items():
            self._index.setdefault((at.start.line, at.start.column, at.end.line, at.end.column), []).append(node)

    def _with_comments(self, line: int, indent: int) -> int:
        """The last line of comments after ``line`` that are indented deeper than ``indent``; ``line`` if none are."""
        last, lines = line, len(self.source.starts)
        while line < lines:
            line += 1
            text = self.source.line(line).strip()
            if text.startswith("#") and len(self.source.indentation(line)) > indent:
                last = line
            elif text:
                break
        return last

    def find(self, node: ast.AST, kind: type[cst.CSTNode] | tuple[type[cst.CSTNode], ...] = cst.CSTNode) -> cst.CSTNode:
        """The LibCST node of class ``kind`` that stands where ``node`` stands. Raises SourceError if there is none."""
        start, end = self.source.bounds(node)
        key = (*self._place(start), *self._place(end))
        for found in self._index.get(key, []):
            if isinstance(found, kind):
                return found
        # LibCST ends a block's position elsewhere than ast does, so a compound statement is found by its start.
        for (line, column, _, _), nodes in self._index.items():
            if (line, column) == key[:2]:
                for found in nodes:
                    if isinstance(found, kind) and isinstance(
                        found, cst.BaseCompoundStatement | cst.BaseSmallStatement
                    ):
                        return found
        raise SourceError(f"no {getattr(kind, '__name__', kind)} found at line {getattr(node, 'lineno', '?')}")

    def _place(self, offset: int) -> tuple[int, int]:
        line, column = self.source.position(offset)
        return line - self._line + 1 + self._prefix.count(self.source.newline), column - 1

    def on(
        self, node: ast.AST, change: Change, kind: type[cst.CSTNode] | tuple[type[cst.CSTNode], ...] = cst.CSTNode
    ) -> None:
        """Change the LibCST node of class ``kind`` at ``node``; several changes of one node run in the order given."""
        self._changes.setdefault(id(self.find(node, kind)), []).append(change)

    def on_line_of(self, node: ast.stmt, change: Change) -> None:
        """Change the ``SimpleStatementLine`` that holds a small statement."""
        small = self.find(node, cst.BaseSmallStatement)
        line = self._holder(small)
        if not isinstance(line, cst.SimpleStatementLine):
            raise SourceError(f"the statement at line {node.lineno} stands in a one-line block")
        self._changes.setdefault(id(line), []).append(change)

    def _holder(self, statement: cst.CSTNode) -> cst.CSTNode:
        """The line or one-line block of a small statement, the block of a line."""
        for nodes in self._index.values():
            for found in nodes:
                body = getattr(found, "body", None)
                if isinstance(body, Sequence) and any(s is statement for s in body):
                    return found
        raise SourceError("a statement stands nowhere")

    def replace(self, node: ast.stmt, change: Callable[[Any], Sequence[cst.BaseSmallStatement]]) -> None:
        """Put what ``change`` makes of a small statement in its place, on lines of their own if it has one.

        A comment on its line stays there, those inside what is dropped go before it. Nothing at all is allowed only
        for the last statement of a block that has others, alone on its line.
        """
        small = self.find(node, cst.BaseSmallStatement)
        holder = self._holder(small)
        own_line = isinstance(holder, cst.SimpleStatementLine) and len(holder.body) == 1
        dropped: list[cst.EmptyLine] = []
        below: list[cst.EmptyLine] = []

        def replaced(old: cst.BaseSmallStatement) -> Any:
            new = change(old)
            kept = {c.value for s in new for c in _comments(s)}
            dropped.extend(cst.EmptyLine(comment=c) for c in _comments(old) if c.value not in kept)
            return cst.FlattenSentinel(new)

        def split(line: cst.SimpleStatementLine) -> Any:
            line = line.with_changes(leading_lines=[*line.leading_lines, *dropped])
            if not line.body:
                below.extend([*line.leading_lines, cst.EmptyLine(comment=line.trailing_whitespace.comment)])
                return line
            if not own_line:
                return line
            first, *rest = line.body
            return cst.FlattenSentinel([line.with_changes(body=[first]), *(cst.SimpleStatementLine([s]) for s in rest)])

        def end(block: cst.IndentedBlock) -> Any:
            while below and not below[-1].comment:
                below.pop()
            return block.with_changes(footer=[*below, *block.footer])

        self._changes.setdefault(id(small), []).append(replaced)
        if isinstance(holder, cst.SimpleStatementLine):
            self._changes.setdefault(id(holder), []).append(split)
            self._changes.setdefault(id(self._holder(holder)), []).append(end)

    def insert_before(self, node: ast.stmt, make: Callable[[], cst.FunctionDef]) -> None:
        """Put the function that ``make`` gives, once all of ``node`` is changed, on lines before it."""
        found = self.find(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement))
        if isinstance(found, cst.BaseSmallStatement):
            found = self._holder(found)
        if isinstance(found, cst.SimpleStatementSuite):
            raise SourceError(f"the statement at line {node.lineno} stands in a one-line block")
        line = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        above = self.source.line(line - 1).strip() if line > 1 else ""
        opens = above and len(self.source.indentation(line - 1)) < len(self.source.indentation(line))
        crowded = above and not opens and not above.startswith("#")

        def change(old: Any) -> cst.FlattenSentinel[Any]:
            first, *rest = old if isinstance(old, cst.FlattenSentinel) else (old,)
            apart = [cst.EmptyLine(indent=False)] * (1 if node.col_offset else 2)
            made = make().with_changes(leading_lines=[*(apart if crowded else ()), *first.leading_lines])
            return cst.FlattenSentinel([made, first.with_changes(leading_lines=apart), *rest])

        self._changes.setdefault(id(found), []).append(change)

    def edit(self) -> Edit:
        """The whole change as one edit, trimmed to what differs."""
        changed = self._wrapper.module.visit(_Transformer(self._changes))
        assert isinstance(changed, cst.Module)
        code = changed.code
        assert code.startswith(self._prefix)
        return trimmed(Edit(self._start, self._end, code[len(self._prefix) :]), self.source.text)


class _Transformer(cst.CSTTransformer):
    def __init__(self, changes: dict[int, list[Change]]) -> None:
        super().__init__()
        self.changes = changes

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        for change in self.changes.get(id(original_node), ()):
            updated_node = change(updated_node)
        return updated_node


def _unreadable(text: str, line: int, end_line: int) -> str:
    odd = "a form feed" if "\f" in text else "a lone carriage return" if re.search("\r(?!\n)", text) else ""
    advice = f"; take out {odd} there" if odd else ""
    return f"lines {line}-{end_line} cannot be changed without changing more{advice}"


def _comments(node: cst.CSTNode) -> Sequence[cst.Comment]:
    # Not libcst.matchers: importing them takes as long as all the rest of LibCST.
    found = [node] if isinstance(node, cst.Comment) else []
    return [*found, *(comment for child in node.children for comment in _comments(child))]


def trimmed(edit: Edit, text: str) -> Edit:
    """The same edit without the lines that it leaves as they are at either end."""
    old, new = text[edit.start : edit.end].splitlines(keepends=True), edit.new.splitlines(keepends=True)
    head = shared(old, new)
    tail = shared(old[head:][::-1], new[head:][::-1])
    skip, keep = sum(map(len, old[:head])), sum(map(len, old[len(old) - tail :]))
    return Edit(edit.start + skip, edit.end - keep, "".join(new[head : len(new) - tail]))
