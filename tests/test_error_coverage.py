"""The scan of JAX's errors: what it reads of a source, and how that is held against the catalogue."""

import textwrap
from pathlib import Path

import error_coverage as coverage
import pytest

from mgpu_fix.catalogue import Rule, Signature

SOURCE = """
HINT = "Hint: do it by hand."

def helper(op, text):
    return ValueError(f"{text} at {op}")

def f(x, names):
    message = f"Expected {x.shape}, got " + "{}".format(x)
    if x:
        raise ValueError(message)
    if names:
        raise errors.LoweringError("%s is not supported: %d. " % (x, 1) + HINT)
    try:
        g()
    except KeyError as e:
        raise
    except TypeError as e:
        raise e
    raise helper(x, "No layout")

class C:
    def g(self):
        raise NotImplementedError
        raise RuntimeError("one " f"two {3!r} {{x}}")
"""


def raised() -> list[tuple[str, str]]:
    return [(r.type, r.message) for r in coverage.Reader("core.py", textwrap.dedent(SOURCE)).read()]


def test_what_a_source_raises() -> None:
    assert raised() == [
        ("ValueError", "Expected {}, got {}"),
        ("LoweringError", "{} is not supported: {}. Hint: do it by hand."),
        ("ValueError", "No layout"),
        ("NotImplementedError", ""),
        ("RuntimeError", "one two {} {x}"),
    ]


class OneRule(Rule):
    """A rule."""

    code, name, jax = "MGF999", "one-rule", "any"
    signatures = (
        Signature("ValueError", r"^Expected \(\d+,\), got"),
        Signature("ValueError", r"^Gone since"),
        Signature("TypeError", r"^f\(\) got an unexpected keyword argument"),
    )

    def candidates(self, failure, source):  # type: ignore[no-untyped-def]
        return ()


def release(version: str, *raises: tuple[str, str]) -> coverage.Release:
    return coverage.Release(version, tuple(coverage.Raised("core.py", *r) for r in raises), ())


def known(*seen: tuple[str, str]) -> coverage.Known:
    return coverage.Known([OneRule()], seen)


EXPECTED, OTHER = ("ValueError", "Expected {}, got {}"), ("ValueError", "Something else about {}")


def test_a_signature_that_wants_more_than_words_needs_a_message_that_was_seen() -> None:
    assert known().code(coverage.Raised("core.py", *EXPECTED)) is None
    seen = known(("ValueError", "Expected (3,), got (4,)"))
    assert seen.code(coverage.Raised("core.py", *EXPECTED)) == "MGF999"
    assert seen.code(coverage.Raised("core.py", *OTHER)) is None
    assert seen.code(coverage.Raised("core.py", "TypeError", EXPECTED[1])) is None


def test_a_message_without_words_of_its_own_is_nobodys() -> None:
    assert (
        known(("ValueError", "Expected (3,), got 1")).code(coverage.Raised("core.py", "ValueError", "{}: {}")) is None
    )


def test_a_record_survives(tmp_path: Path) -> None:
    kept = coverage.record(release("0.12.0", EXPECTED, OTHER), known(("ValueError", "Expected (3,), got 1")))
    coverage.write_record(kept, tmp_path)
    assert coverage.read_records(tmp_path) == [kept]
    assert (kept.files, kept.rules) == ({"core.py": [2, 1]}, {"MGF999": 1})


def test_what_is_new_and_what_is_gone_since_the_last_record(capsys: pytest.CaptureFixture[str]) -> None:
    catalogue = known(("ValueError", "Expected (3,), got 1"), ("ValueError", "Gone since 1 day"))
    gone = ("ValueError", "Gone since {} day")
    old = coverage.record(release("0.11.0", EXPECTED, gone), catalogue)
    assert coverage.tell(release("0.12.0", EXPECTED, OTHER), catalogue, [old], False)
    told = capsys.readouterr().out
    assert "2 raise statements, 1 with a rule" in told
    assert "new: core.py: ValueError: Something else about {} [no rule]" in told
    assert "matches nothing any more: MGF999 ValueError ^Gone since" in told
    assert "Expected" not in told
    assert "unexpected keyword" not in told
    # Once it is recorded there is nothing left to do for it.
    both = [old, coverage.record(release("0.12.0", EXPECTED, OTHER), catalogue)]
    assert not coverage.tell(release("0.12.0", EXPECTED, OTHER), catalogue, both, False)


def test_the_table() -> None:
    catalogue = known(("ValueError", "Expected (3,), got 1"), ("ValueError", "Gone since 1 day"))
    records = [
        coverage.record(release("0.11.0", EXPECTED, ("ValueError", "Gone since {} day")), catalogue),
        coverage.record(release("0.12.0", EXPECTED), catalogue),
    ]
    page = coverage.table(records, catalogue)
    assert "| 0.11.0 | 2 | 2 |\n| 0.12.0 | 1 | 1 |" in page
    assert "| MGF999 one-rule | 2 | 1 |" in page
    assert "| `MGF999 ValueError ^Gone since` | 0.11.0 |" in page
    assert "| `core.py` | 1 | 1 |" in page
