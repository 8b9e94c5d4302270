"""MGF403: augmented stores of another dtype, written out. Nothing here imports JAX."""

import pytest
from proposals import place, proposed

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Facts, Misfit
from mgpu_fix.source import SourceFile

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
