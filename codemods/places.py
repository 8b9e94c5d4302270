"""What stands in a file where a failure was raised."""

import ast

from mgpu_fix.model import Failure
from mgpu_fix.source import Names


def calls_at(names: Names, failure: Failure) -> list[ast.Call]:
    """The calls that are the failing expression, outer ones first; none where it stands in another file."""
    return [call for call in names.nodes(ast.Call) if failure.span and names.source.span(call) == failure.span]
