"""reviewdog's rdjson: each change of a file becomes a suggestion on a pull request that one click applies."""

from typing import Any

from mgpu_fix.model import FileReport, Report
from mgpu_fix.report import json
from mgpu_fix.report.findings import Change, Finding, changes, findings, told

_SEVERITY = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}


def render(report: Report, applied: bool) -> str:
    """The report as rdjson. Columns there count bytes, so places are whole lines."""
    suggested = [] if applied else [d for file in report.files if file.status != "blocked" for d in _suggestions(file)]
    # What a suggestion tells is not told twice.
    others = [_diagnostic(f) for f in findings(report, applied) if f.level != "warning"]
    return json.dump({"source": {"name": "mgpu-fix"}, "diagnostics": [*suggested, *others]}) + "\n"


def _suggestions(file: FileReport) -> list[dict[str, Any]]:
    found = list(changes(file.diff))
    out = []
    for i, change in enumerate(found):
        near = [f for f in file.fixes if f.line is not None and change.start - 1 <= f.line <= change.end]
        mine = near or list(file.fixes)
        what = "\n".join(f"{fix.code} {fix.name}: {told(fix)}" for fix in mine)
        part = f"\nPart {i + 1} of {len(found)}; they belong together." if len(found) > 1 else ""
        first, last, text = _lines(change)
        where = {"start": {"line": first}, "end": {"line": last}}
        out.append(
            {
                "message": what + part,
                "location": {"path": file.path, "range": where},
                "severity": "WARNING",
                **({"code": {"value": mine[0].code}} if mine else {}),
                "suggestions": [{"range": where, "text": text}],
            }
        )
    return out


def _lines(change: Change) -> tuple[int, int, str]:
    """A change as lines ``first`` to ``last`` and the text in their place, without the end of its last line. What adds
    or deletes whole lines takes one beside them along, since there is no range of no lines."""
    first, last, text = change.start, change.end - 1, change.text
    if first > last or not text:
        if change.below:
            last, text = last + 1, text + change.below
        elif change.above:
            first, text = first - 1, change.above + text
        else:
            first, last = max(first, 1), max(last, 1)
    return first, last, text.removesuffix("\n").removesuffix("\r")


def _diagnostic(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {"path": finding.path}
    if finding.line is not None:
        location["range"] = {"start": {"line": finding.line}}
    return {
        "message": finding.message,
        "location": location,
        "severity": _SEVERITY[finding.level],
        "code": {"value": finding.code or finding.name},
    }
