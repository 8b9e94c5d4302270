"""SARIF 2.1.0, which code scanning services and editors read."""

import os
import urllib.parse
from typing import Any

from mgpu_fix.catalogue import Rule, load
from mgpu_fix.model import Report
from mgpu_fix.report import json
from mgpu_fix.report.findings import Change, Finding, findings

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report, applied: bool) -> str:
    """The report as SARIF; a fix holds every change of its file. Raises CatalogueError."""
    found = list(findings(report, applied))
    used = {finding.code for finding in found}
    rules = [rule for rule in sorted(load().rules, key=lambda r: r.code) if rule.code in used]
    places = {rule.code: i for i, rule in enumerate(rules)}
    driver: dict[str, Any] = {"name": "mgpu-fix", "rules": list(map(_rule, rules))}
    if report.tool.get("version"):
        driver["version"] = report.tool["version"]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, places) for finding in found],
    }
    return json.dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.page, "markdown": rule.page},
    }


def _result(finding: Finding, places: dict[str, int]) -> dict[str, Any]:
    artifact = {"uri": _uri(finding.path)}
    physical: dict[str, Any] = {"artifactLocation": artifact}
    if finding.line is not None:
        column = {"startColumn": finding.column} if finding.column is not None else {}
        physical["region"] = {"startLine": finding.line, **column}
    result: dict[str, Any] = {
        "ruleId": finding.code or finding.name,
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": physical}],
    }
    if finding.code in places:
        result["ruleIndex"] = places[finding.code]
    if finding.changes:
        change = {"artifactLocation": artifact, "replacements": list(map(_replacement, finding.changes))}
        result["fixes"] = [{"description": {"text": finding.message}, "artifactChanges": [change]}]
    return result


def _replacement(change: Change) -> dict[str, Any]:
    region = {"startLine": change.start, "startColumn": 1, "endLine": change.end, "endColumn": 1}
    return {"deletedRegion": region, "insertedContent": {"text": change.text}}


def _uri(path: str) -> str:
    """A path as a URI: relative to where the command ran, else absolute."""
    quoted = urllib.parse.quote(path.replace(os.sep, "/").encode("utf-8", "surrogateescape"))
    return f"file://{quoted}" if os.path.isabs(path) else quoted
