"""MGF403: what a conversion may lose, what is wanted for it, and stores that are written out. No JAX is imported."""

import pytest
from proposals import place, proposed

from mgpu_fix.catalogue import NoFix, load
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


HEAD = "import jax.numpy as jnp\n\n\ndef kernel(x_ref, o_ref, i):\n    "


def fixed(store: str, shape: tuple[int, ...] = (128,)) -> str:
    text = f"{HEAD}{store}\n"
    misfit = Misfit(place(SourceFile("k.py", text.encode()), "o_ref["), (128,), "float16", shape, "float32")
    message = "Invalid dtype for `swap`. Ref dtype: float16. Value dtype: float32."
    source, [only] = proposed(text, "o_ref[", "ValueError", message, Facts(misfits=(misfit,)))
    return source.edited(only.edits).text.removeprefix(HEAD).strip()


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"])
def test_every_operator(operator: str) -> None:
    assert fixed(f"o_ref[i] {operator}= x_ref[i]") == f"o_ref[i] = (o_ref[i] {operator} x_ref[i]).astype(o_ref.dtype)"


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("x * 2", "x * 2"),
        ("x - 2", "(x - 2)"),
        ("x if i else -x", "(x if i else -x)"),
        ("(x - 2)", "(x - 2)"),
        ("(  # why\n        x == 2\n    )", "(  # why\n        x == 2\n    )"),
        ("x < 2", "(x < 2)"),
        ("lambda: x", "(lambda: x)"),
    ],
)
def test_what_binds_stays_bound(value: str, right: str) -> None:
    assert fixed(f"o_ref[...] -= {value}") == f"o_ref[...] = (o_ref[...] - {right}).astype(o_ref.dtype)"


@pytest.mark.parametrize("store", ["o_ref[step()] += x_ref[...]", "o_ref[(n := i)] += x_ref[...]"])
def test_an_index_is_not_computed_twice(store: str) -> None:
    with pytest.raises(NoFix, match="cannot be written twice"):
        fixed(store)


def test_what_grows_is_left() -> None:
    with pytest.raises(NoFix, match="another shape"):
        fixed("o_ref[0] += x_ref[...]", (2, 128))


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("def kernel(x_ref, o_ref):\n    o_ref[...] += x_ref[...]\n", Applicability.SAFE),
        (
            "def kernel(x_ref, o_ref):\n    for k in range(4):\n        o_ref[...] += x_ref[k]\n",
            Applicability.UNSAFE,
        ),
    ],
)
def test_a_sum_that_is_rounded_again_and_again_is_unsafe(text: str, level: Applicability) -> None:
    misfit = Misfit(place(SourceFile("k.py", text.encode()), "o_ref["), (128,), "bfloat16", (128,), "float32")
    message = "Invalid dtype for `swap`. Ref dtype: bfloat16. Value dtype: float32."
    _, [only] = proposed(text, "o_ref[", "ValueError", message, Facts(misfits=(misfit,)))
    assert only.applicability is level
