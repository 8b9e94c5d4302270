"""What a rule proposes for a failure at a place in a text. Nothing here imports JAX."""

import ast

from mgpu_fix import catalogue
from mgpu_fix.model import Candidate, Facts, Failure, Span
from mgpu_fix.source import SourceFile


def place(source: SourceFile, at: str) -> Span:
    """The longest call or item that begins where ``at`` does, for the first time; the first line where it is empty."""
    if not at:
        return Span(source.path, 1)
    start = source.text.index(at)
    nodes = (n for n in ast.walk(source.tree) if isinstance(n, ast.Call | ast.Subscript))
    return source.span(max((n for n in nodes if source.bounds(n)[0] == start), key=lambda n: source.bounds(n)[1]))


def proposed(
    text: str, at: str, kind: str, message: str, facts: Facts = Facts(), kernel: str = ""
) -> tuple[SourceFile, list[Candidate]]:
    """The candidates for an error that is raised there. Raises NoFix."""
    source = SourceFile("k.py", text.encode())
    failure = Failure(kind, message, "lower", place(source, at), kernel, facts=facts)
    rule = catalogue.load().match(failure)
    assert rule is not None
    return source, list(rule.candidates(failure, source))
