"""MGF403: what a conversion may lose, and what is wanted for it. Nothing here imports JAX."""

import pytest

from mgpu_fix.catalogue import load
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Facts, Failure, Misfit, Span
from mgpu_fix.source import SourceFile

SOURCE = SourceFile("k.py", b"def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...] * 2\n")
AT = Span("k.py", 2, 5, 2, 15)


@pytest.mark.parametrize(
    ("given", "wanted", "level", "wants_numbers"),
    [
        ("float16", "float32", Applicability.SAFE, False),
        ("float32", "bfloat16", Applicability.SAFE, False),
        ("float32", "float16", Applicability.SAFE, True),
        ("bfloat16", "float8_e4m3fn", Applicability.SAFE, True),
        ("float32", "int32", Applicability.UNSAFE, False),
    ],
)
def test_what_may_become_infinite_wants_numbers(
    given: str, wanted: str, level: Applicability, wants_numbers: bool
) -> None:
    misfit = Misfit(AT, (128,), wanted, (128,), given)
    message = f"Invalid dtype for `swap`. Ref dtype: {wanted}. Value dtype: {given}. "
    failure = Failure("ValueError", message, "trace", AT, "kernel", facts=Facts(misfits=(misfit,)))
    rule = load().match(failure)
    assert rule is not None
    [candidate] = rule.candidates(failure, SOURCE)
    assert (candidate.applicability, candidate.needs_oracle) == (level, wants_numbers)
    assert SOURCE.edited(candidate.edits).text.endswith("o_ref[...] = (x_ref[...] * 2).astype(o_ref.dtype)\n")
