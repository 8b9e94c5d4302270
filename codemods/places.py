"""What stands in a file where a failure was raised."""

import ast
from collections.abc import Iterator
from typing import TypeVar

from mgpu_fix.model import Span
from mgpu_fix.source import Names

E = TypeVar("E", bound=ast.expr)


def standing_at(names: Names, span: Span | None, kind: type[E]) -> list[E]:
    """The expressions of exactly that class at a place, outer ones first; none where that is in another file."""
    if span is None or span.path != names.source.path:
        return []
    # Most of them are told apart by their lines, which cost nothing.
    near = (node for node in names.nodes(kind) if node.lineno == span.line)
    return [node for node in near if names.source.span(node) == span]


def made_at(names: Names, span: Span | None) -> Iterator[ast.Call]:
    """The calls on the line of a place, and those that made what they call: what a kernel is declared by, also where it
    is called and where it is a decorator."""
    if span is None or span.path != names.source.path:
        return
    seen: set[ast.Call] = set()
    for call in (c for c in names.nodes(ast.Call) if c.lineno == span.line):
        made: ast.AST | None = call.func
        while isinstance(made, ast.Name):
            made = names.binding(made.id, made)
        decorators = made.decorator_list if isinstance(made, ast.FunctionDef) else [made]
        for declared in (call, *decorators):
            if isinstance(declared, ast.Call) and declared not in seen:
                seen.add(declared)
                yield declared


def callee(names: Names, call: ast.Call) -> ast.expr:
    """What a call calls, or what ``functools.partial`` of it will."""
    partial = names.resolve(call.func) == "functools.partial" and call.args
    return call.args[0] if partial else call.func
