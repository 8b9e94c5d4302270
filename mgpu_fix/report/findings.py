"""A report as a list of findings, for the formats that know nothing of kernels and proofs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgpu_fix.model import FileReport, Fix, Remaining, Report
from mgpu_fix.report.text import PROVEN

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


@dataclass(frozen=True)
class Change:
    """Lines ``start`` to before ``end`` of a file (1-based) become ``text``, whole lines with their ends; where both
    are equal it is put before that line. ``above`` and ``below`` are the lines around it, if there are any.
    """

    start: int
    end: int
    text: str
    above: str = ""
    below: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing to tell of a file. ``level`` is error, warning or note; ``line`` and ``column`` are None where nothing
    is known of the place. ``changes`` repair it, where that is not done already."""

    path: str
    line: int | None
    column: int | None
    level: str
    code: str
    name: str
    message: str
    changes: tuple[Change, ...] = ()


def findings(report: Report, applied: bool) -> Iterator[Finding]:
    """Everything that a report has to say. All changes of a file come with its first fix, since they belong together;
    ``applied`` says that they were made."""
    for file in report.files:
        if file.status == "blocked":
            yield Finding(file.path, None, None, "error", "", "blocked", file.reason)
            continue
        made = () if applied else tuple(changes(file.diff))
        for i, fix in enumerate(file.fixes):
            level = "note" if applied else "warning"
            yield Finding(file.path, fix.line, fix.column, level, fix.code, fix.name, told(fix), made if i == 0 else ())
        yield from (_left(file, item, "error") for item in file.remaining)
        yield from (_left(file, item, "note") for item in file.notes)
        if file.stopped:
            yield Finding(file.path, None, None, "error", "", "stopped", file.reason)


def told(fix: Fix) -> str:
    """A fix in one line."""
    cost = f"; cost: {fix.cost}" if fix.cost else ""
    return f"{fix.title} [{fix.applicability.value}, {PROVEN[fix.verified_by]}]{cost}"


def _left(file: FileReport, item: Remaining, level: str) -> Finding:
    first = (item.message.strip().splitlines() or [""])[0]
    message = f"{item.type} ({item.stage}): {first}\n{item.reason}"
    return Finding(item.path or file.path, item.line, item.column, level, item.code or "", item.type, message)


def changes(diff: str) -> Iterator[Change]:
    """What a unified diff of one file replaces, without most of the lines around it."""
    lines = diff.removesuffix("\n").split("\n") if diff else []
    at = 0
    while at < len(lines):
        head = _HUNK.match(lines[at])
        at += 1
        if head is None:
            continue
        body = []
        while at < len(lines) and lines[at][:1] in (" ", "+", "-", "\\"):
            body.append(lines[at])
            at += 1
        # An empty hunk stands after the line that it names.
        yield from _of_hunk(int(head[1]) + (head[2] == "0"), body)


def _of_hunk(line: int, body: Sequence[str]) -> Iterator[Change]:
    at = 0
    above = ""
    while at < len(body):
        if body[at][:1] == " ":
            above = f"{body[at][1:]}\n"
            line, at = line + 1, at + 1
            continue
        start, text, old = line, "", ""
        # One line between two changes is a part of both, so that there is one that both can take along.
        while at < len(body) and (body[at][:1] != " " or (at + 1 < len(body) and body[at + 1][:1] != " ")):
            kind, rest = body[at][:1], body[at][1:]
            line += kind in "- "
            text += f"{rest}\n" if kind in "+ " else ""
            if kind == "\\" and old in "+ ":
                text = text.removesuffix("\n")
            old, at = kind, at + 1
        below = f"{body[at][1:]}\n" if at < len(body) else ""
        yield Change(start, line, text, above, below)
