"""Annotations of GitHub Actions: lines that a workflow prints and a pull request shows."""

from mgpu_fix.model import Report
from mgpu_fix.report.findings import Finding, findings

_COMMAND = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report, applied: bool) -> str:
    """One line for each finding; what can be repaired comes with its patch."""
    patches = {} if applied else {file.path: file.diff for file in report.files}
    return "".join(_line(finding, patches.get(finding.path, "")) for finding in findings(report, applied))


def _line(finding: Finding, patch: str) -> str:
    places = {"file": finding.path, "line": finding.line, "col": finding.column}
    title = " ".join(filter(None, (finding.code, finding.name)))
    properties = ",".join(f"{key}={_property(str(v))}" for key, v in {**places, "title": title}.items() if v)
    message = f"{finding.message}\n\n{patch}" if finding.changes else finding.message
    return f"::{_COMMAND[finding.level]} {properties}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
