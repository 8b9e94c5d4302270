"""What every golden case proves without JAX: the recorded failure finds its rule, the rule makes the recorded edit."""

import subprocess
from pathlib import Path

import pytest
from golden_cases import CASES, Case, name

from mgpu_fix.catalogue import NoFix, load
from mgpu_fix.model import Failure
from mgpu_fix.source import SourceFile, merge_edits, unified_diff

pytestmark = pytest.mark.parametrize("case", CASES, ids=name)


def failures(case: Case) -> list[Failure]:
    """Every recorded failure, whatever version raised it."""
    return [f for recorded in case.recorded().values() for f in recorded]


def fixed(case: Case, data: bytes) -> bytes:
    """``data`` after the best candidate of every failure that one version raised."""
    recorded = next(fs for fs in case.recorded().values() if fs)
    source = SourceFile(case.path, data)
    rules = {f: load().match(f) for f in recorded}
    groups = [next(iter(rule.candidates(f, source))).edits for f, rule in rules.items() if rule]
    return source.edited(merge_edits(groups)).data


def test_it_is_recorded(case: Case) -> None:
    assert failures(case), "run: pytest --update-cases"


def test_the_file_survives_unedited(case: Case) -> None:
    source = SourceFile(case.path, case.before)
    assert source.encode(source.text) == case.before


def test_the_failure_hits_exactly_its_rule(case: Case) -> None:
    for failure in failures(case):
        assert [r.code for r in load().ties(failure)] == [case.code]


def test_the_rule_gives_the_fixed_file(case: Case) -> None:
    if not case.repairs:
        with pytest.raises(NoFix, match="by hand: "):
            fixed(case, case.before)
        return
    assert fixed(case, case.before).decode() == case.after.decode()


def test_the_patch_is_as_expected_and_git_takes_it(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    patch = unified_diff("before.py", case.before, case.after)
    expected = case.folder / "expected.diff"
    if request.config.getoption("--update-cases"):
        expected.write_text(patch, encoding="utf-8")
    assert patch == expected.read_text(encoding="utf-8")
    (tmp_path / "before.py").write_bytes(case.before)
    subprocess.run(["git", "apply", "--check", "-"], input=patch.encode(), cwd=tmp_path, check=True)


#: rules that put two operands into the other order, whichever it is
EXCHANGES = ("MGF410", "MGF705")


def test_fixing_twice_changes_nothing(case: Case) -> None:
    source = SourceFile(case.path, case.after)
    for failure in failures(case):
        rule = load().match(failure)
        assert rule is not None
        try:
            candidates = list(rule.candidates(failure, source))
        except NoFix:
            continue
        if rule.code in EXCHANGES:
            # What is exchanged once more is as it was before.
            assert source.edited(candidates[0].edits).data == case.before
            continue
        assert all(source.edited(c.edits).data == case.after for c in candidates)


def test_no_comment_is_lost(case: Case) -> None:
    assert not SourceFile("", case.before).comments - SourceFile("", case.after).comments


def test_the_crlf_twin_works(case: Case) -> None:
    if not case.repairs:
        pytest.skip("nothing is changed")
    twin = case.before.replace(b"\n", b"\r\n")
    assert fixed(case, twin) == case.after.replace(b"\n", b"\r\n")
