"""Arguments of calls: in their order, taken out and put in; and the statements whose calls change together."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit
from mgpu_fix.source import Names, SourceFile, Splice

Space: TypeAlias = cst.BaseParenthesizableWhitespace

#: Lines that are no statement without the lines before them.
_CLAUSE = re.compile(r"\s*(elif|else|except|finally|case)\b")


def in_order(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """Arguments as they stand in the source, which is LibCST's order too."""
    return sorted((*call.args, *call.keywords), key=lambda argument: (argument.lineno, argument.col_offset))


@dataclass
class Run:
    """Statements from ``first`` to ``last``, and what changes in them."""

    first: ast.stmt
    last: ast.stmt
    nodes: list[ast.expr]


def runs(source: SourceFile, names: Names, nodes: Iterable[ast.expr]) -> list[Run]:
    """The smallest runs of whole statements that hold the nodes and share no line."""
    runs: list[Run] = []
    placed = [(_statement(source, names, node), node) for node in nodes]
    for statement, node in sorted(placed, key=lambda p: (_first_line(p[0]), -_last_line(p[0]))):
        if not runs or _first_line(statement) > _last_line(runs[-1].last):
            runs.append(Run(statement, statement, []))
        elif _last_line(statement) > _last_line(runs[-1].last):
            runs[-1].last = statement
        runs[-1].nodes.append(node)
    return runs


def spliced(names: Names, changes: Mapping[ast.expr, Callable[[Any], cst.BaseExpression]]) -> Iterator[Edit]:
    """The edits that change calls and other expressions, which may lie in each other, as LibCST nodes. Raises
    SourceError."""
    for run in runs(names.source, names, changes):
        splice = Splice(names.source, run.first, run.last)
        for node in run.nodes:
            splice.on(node, changes[node], cst.Call if isinstance(node, ast.Call) else cst.BaseExpression)
        yield splice.edit()


def _statement(source: SourceFile, names: Names, node: ast.AST) -> ast.stmt:
    """The innermost statement around ``node`` whose lines can be read alone; those of ``else: f()`` cannot."""
    statement = names.statement(node)
    for outer in names.ancestors(statement):
        if not _CLAUSE.match(source.line(_first_line(statement))):
            break
        if isinstance(outer, ast.stmt):
            statement = outer
    return statement


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _last_line(statement: ast.stmt) -> int:
    return cast(int, statement.end_lineno)


def without_statement(names: Names, statement: ast.stmt) -> Edit:
    """Takes a statement out with its line. Raises NoFix where it shares that, or is the only one of its block."""
    source = names.source
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    start = source.starts[first - 1]
    end = source.starts[last] if last < len(source.starts) else len(source.text)
    rest = source.text[start:end].replace(source.segment(statement), "", 1).strip()
    siblings = getattr(names.parents[statement], "body", [])
    if rest or len(siblings) < 2:
        raise NoFix(f"the statement at line {first} cannot be taken out alone")
    return Edit(start, end, "")


def without(call: cst.Call, place: int) -> cst.Call:
    """The call without one of its arguments: the line that it leaves empty goes, comments around it stay."""
    args = list(call.args)
    gone = args.pop(place)
    comma = gone.comma if isinstance(gone.comma, cst.Comma) else None
    right = comma.whitespace_after if comma else gone.whitespace_after_arg
    if place == 0:
        left = call.whitespace_before_args
        return call.with_changes(args=args, whitespace_before_args=_joined(left, right, keep_left=True))
    before = args[place - 1]
    separator = cst.ensure_type(before.comma, cst.Comma)
    left = separator.whitespace_after
    if place < len(args):
        space = _joined(left, right, keep_left=isinstance(left, cst.ParenthesizedWhitespace))
        changed = before.with_changes(comma=separator.with_changes(whitespace_after=space))
    elif comma:
        changed = before.with_changes(comma=comma.with_changes(whitespace_after=_joined(left, right)))
    else:
        changed = before.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=_joined(left, right))
    args[place - 1] = changed
    return call.with_changes(args=args)


def without_keyword(call: cst.Call, name: str) -> cst.Call:
    """The call without the argument of that keyword."""
    return without(call, next(i for i, arg in enumerate(call.args) if arg.keyword and arg.keyword.value == name))


def _joined(left: Space, right: Space, *, keep_left: bool = False) -> Space:
    """One space for two that a dropped argument stood between; the other one only if that has a comment to keep."""
    if isinstance(left, cst.ParenthesizedWhitespace) and isinstance(right, cst.ParenthesizedWhitespace):
        comment = right.first_line.comment
        own_line = cst.EmptyLine(left.indent, left.last_line, comment, right.first_line.newline)
        lines = [*left.empty_lines, *([own_line] if comment else []), *right.empty_lines]
        return right.with_changes(first_line=left.first_line, empty_lines=lines)
    kept, other = (left, right) if keep_left else (right, left)
    return other if _has_comment(other) else kept


def _has_comment(space: Space) -> bool:
    return "#" in cst.Module([]).code_for_node(space)


def with_argument(call: cst.Call, new: cst.Arg) -> cst.Call:
    """The call with one more argument behind the others, set like the last of them."""
    if not call.args:
        return call.with_changes(args=[new])
    *others, last = call.args
    trailing = last.comma if isinstance(last.comma, cst.Comma) else None
    end = trailing.whitespace_after if trailing else last.whitespace_after_arg
    # What stands before the last argument also stands before the new one, but for comments.
    before = cst.ensure_type(others[-1].comma, cst.Comma).whitespace_after if others else call.whitespace_before_args
    if isinstance(before, cst.ParenthesizedWhitespace):
        first = end.first_line if isinstance(end, cst.ParenthesizedWhitespace) else _bare(before.first_line)
        lines = end.empty_lines if isinstance(end, cst.ParenthesizedWhitespace) else ()
        between: Space = before.with_changes(first_line=first, empty_lines=lines)
    else:
        between = cst.SimpleWhitespace(" ")
        if isinstance(end, cst.ParenthesizedWhitespace) and _has_comment(end):
            between = end
    after: Space = end
    if isinstance(end, cst.ParenthesizedWhitespace):
        after = end.with_changes(first_line=_bare(end.first_line), empty_lines=[])
    if trailing:
        new = new.with_changes(comma=trailing.with_changes(whitespace_after=after))
    else:
        new = new.with_changes(whitespace_after_arg=after)
    last = last.with_changes(comma=cst.Comma(whitespace_after=between), whitespace_after_arg=cst.SimpleWhitespace(""))
    return call.with_changes(args=[*others, last, new])


def replaced(call: cst.Call, new: cst.Arg) -> cst.Call:
    """The call with another value for an argument that it has."""
    assert new.keyword
    name = new.keyword.value
    args = [a.with_changes(value=new.value) if a.keyword and a.keyword.value == name else a for a in call.args]
    return call.with_changes(args=args)


def exploded(call: cst.Call, indent: str) -> cst.Call:
    """The call with each argument on a line of its own."""
    inside = cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))
    end = cst.ParenthesizedWhitespace(indent=True)
    tight = cst.SimpleWhitespace("")
    *others, last = (arg.with_changes(whitespace_after_arg=tight) for arg in call.args)
    args = [arg.with_changes(comma=cst.Comma(whitespace_after=inside)) for arg in others]
    args.append(last.with_changes(comma=cst.Comma(whitespace_after=end)))
    return call.with_changes(args=args, whitespace_before_args=inside)


def keyword(name: str, value: str) -> cst.Arg:
    """``name=value``."""
    tight = cst.SimpleWhitespace("")
    return cst.Arg(cst.parse_expression(value), cst.Name(name), cst.AssignEqual(tight, tight))


def _bare(line: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    return cst.TrailingWhitespace(newline=line.newline)
