"""``ref[...] = value`` written as a call."""

import ast

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit
from mgpu_fix.source import SourceFile


def place(source: SourceFile, target: ast.Subscript) -> str:
    """The Ref, or ``ref.at[index]``, that ``ref[index]`` stands for."""
    base = source.segment(target.value)
    whole = isinstance(target.slice, ast.Constant) and target.slice.value is ...
    return base if whole else f"{base}.at[{source.segment(target.slice)}]"


def opened(source: SourceFile, statement: ast.Assign | ast.AugAssign, target: ast.Subscript, function: str) -> Edit:
    """``ref[index] =`` becomes ``function(ref.at[index],``; its bracket is to be closed behind the statement.

    Raises NoFix where what is stored is no plain value.
    """
    if isinstance(statement.value, ast.Tuple | ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr):
        raise NoFix(f"what is stored at line {statement.lineno} is no plain value")
    start, end = source.bounds(target)
    end += source.text[end : source.bounds(statement.value)[0]].index("=") + 1
    end += len(source.text[end:]) - len(source.text[end:].lstrip(" \t"))
    return Edit(start, end, f"{function}({place(source, target)}, ")
