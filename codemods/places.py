"""What stands in a file where a failure was raised."""

import ast
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
