"""Reports for machines: SARIF, GitHub's annotations, reviewdog's rdjson."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_report import FIX, LEFT, PARTIAL, REPORT

from mgpu_fix.model import FileReport, Remaining, Report
from mgpu_fix.report import github, rdjson, sarif
from mgpu_fix.report.findings import changes
from mgpu_fix.source import unified_diff

OLD = "import a\n\n\ndef f(x):\n    return x\n\n\n# end\n"
NEW = "import a\nimport b\n\n\ndef f(x, o):\n    o[...] = x\n\n\n"
FILE = replace(PARTIAL, diff=unified_diff("k.py", OLD.encode(), NEW.encode()))
#: one file that can be repaired, one that cannot be run, one with a note
WHOLE = replace(
    REPORT,
    files=(
        FILE,
        FileReport("a b,é.py", "blocked", reason="it is not Python: 100% wrong\nreally"),
        FileReport("/abs/n.py", "clean", notes=(Remaining("MGF909", "parse", "Drift", "x", "", 3, 4, "look"),)),
    ),
)


def lines_of(text: str) -> list[str]:
    found = text.split("\n")
    return [f"{line}\n" for line in found[:-1]] + ([found[-1]] if found[-1] else [])


def by_region(text: str, replacements: list[dict[str, Any]]) -> str:
    """What a reader of SARIF does with regions of whole lines."""
    lines = lines_of(text)
    for item in sorted(replacements, key=lambda r: -r["deletedRegion"]["startLine"]):
        region = item["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [item["insertedContent"]["text"]]
    return "".join(lines)


def by_line(text: str, suggestions: list[dict[str, Any]]) -> str:
    """What a reader of rdjson does with ranges of whole lines, whose last end stays."""
    lines = lines_of(text)
    for item in sorted(suggestions, key=lambda s: -s["range"]["start"]["line"]):
        first, last = item["range"]["start"]["line"], item["range"]["end"]["line"]
        assert set(item["range"]["start"]) == {"line"}
        end = lines[last - 1][len(lines[last - 1].rstrip("\r\n")) :]
        lines[first - 1 : last] = [item["text"] + end]
    return "".join(lines)


def suggested(report: Report) -> list[dict[str, Any]]:
    found = json.loads(rdjson.render(report, applied=False))["diagnostics"]
    return [s for d in found for s in d.get("suggestions", [])]


def test_a_fix_in_sarif_gives_the_new_text() -> None:
    [run] = json.loads(sarif.render(WHOLE, applied=False))["runs"]
    [fixed] = [r for r in run["results"] if "fixes" in r]
    [change] = fixed["fixes"][0]["artifactChanges"]
    assert by_region(OLD, change["replacements"]) == NEW
    assert change["artifactLocation"] == {"uri": "k.py"}
    rules = run["tool"]["driver"]["rules"]
    assert rules[fixed["ruleIndex"]]["id"] == fixed["ruleId"] == "MGF401"
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("MGF401", "warning"),
        ("MGF101", "error"),
        ("blocked", "error"),
        ("MGF909", "note"),
    ]
    places = [r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]]
    assert places == ["k.py", "k.py", "a%20b%2C%C3%A9.py", "file:///abs/n.py"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 8, "startColumn": 5}


def test_suggestions_in_rdjson_give_the_new_text() -> None:
    assert by_line(OLD, suggested(WHOLE)) == NEW
    found = json.loads(rdjson.render(WHOLE, applied=False))["diagnostics"]
    assert all("MGF401 kernel-returns-value: Store the returned value" in d["message"] for d in found[:3])
    assert "Part 2 of 3; they belong together." in found[1]["message"]
    assert [d["severity"] for d in found] == ["WARNING", "WARNING", "WARNING", "ERROR", "ERROR", "INFO"]


@pytest.mark.parametrize("form", [sarif, rdjson])
def test_what_was_written_is_not_offered_again(form: Any) -> None:
    told = form.render(WHOLE, applied=True)
    assert "replacements" not in told
    assert "suggestions" not in told
    assert "Store the returned value" in told


def test_annotations_are_escaped_and_hold_the_patch() -> None:
    told = github.render(WHOLE, applied=False).splitlines()
    head = "::warning file=k.py,line=8,col=5,title=MGF401 kernel-returns-value::"
    assert told[0].startswith(f"{head}Store the returned value into `o_ref` [safe, ")
    assert "%0A+    o[...] = x%0A" in told[0]
    assert told[1].startswith("::error file=k.py,line=12,col=9,title=MGF101 ValueError::ValueError (lower): Can only")
    assert told[2] == "::error file=a b%2Cé.py,title=blocked::it is not Python: 100%25 wrong%0Areally"
    assert told[3].startswith("::notice file=/abs/n.py,line=3,col=4,title=MGF909 Drift::")
    assert len(told) == 4


def test_an_empty_report_is_still_valid() -> None:
    assert json.loads(sarif.render(Report(()), applied=False))["runs"][0]["results"] == []
    assert json.loads(rdjson.render(Report(()), applied=False))["diagnostics"] == []
    assert github.render(Report(()), applied=False) == ""


TEXT = st.lists(st.sampled_from(["a", "b", " c", "", "-x", "+y", "@@ -1 +1 @@", "\\ z", "é"]), max_size=9)


@given(old=TEXT, new=TEXT, ends=st.tuples(st.booleans(), st.booleans()), eol=st.sampled_from(["\n", "\r\n"]))
def test_every_change_can_be_made_by_hand(old: list[str], new: list[str], ends: tuple[bool, bool], eol: str) -> None:
    before, after = (eol.join(x) + eol * (end and bool(x)) for x, end in zip((old, new), ends, strict=True))
    diff = unified_diff("k.py", before.encode(), after.encode())
    lines = lines_of(before)
    for change in reversed(list(changes(diff))):
        lines[change.start - 1 : change.end - 1] = [change.text]
    assert "".join(lines) == after
    # Without an end to its last line a file has no lines for a reader of whole lines.
    if before.endswith("\n") and after.endswith("\n"):
        fixed = replace(PARTIAL, fixes=(FIX,), remaining=(LEFT,), diff=diff)
        assert by_line(before, suggested(replace(REPORT, files=(fixed,)))) == after
