"""MGF412 and MGF413: Refs where arrays are meant, and the other way round. Nothing here imports JAX."""

import ast

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import SourceFile

HEAD = """\
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref, barriers):
"""
SUM = ("TypeError", "unsupported operand type(s) for +: 'DynamicJaxprTracer' and 'DynamicJaxprTracer'")
REF = ("ValueError", "Cannot store a Ref into another Ref. Did you forget to load from it using `[...]`?")
SECOND = ("TypeError", "where got a Ref of type Ref<gmem>{float32[128]} at position 1, but a Ref can't be passed where an array is expected.")  # fmt: skip  # noqa: E501
CALL = ("ValueError", "Can only call `barrier_wait` on a `Ref`: JitTracer(barrier[]).")
ACCUMULATOR = ("TypeError", "Expected WGMMAAbstractAccumulatorRef got float32[64,64]")


def proposed(text: str, at: str, error: tuple[str, str]) -> tuple[SourceFile, list[Candidate]]:
    """The candidates for an error at the first expression or statement behind the head that reads ``at``."""
    source = SourceFile("k.py", (HEAD + "".join(f"    {line}\n" for line in text.split("\n"))).encode())
    found = (n for n in ast.walk(source.tree) if getattr(n, "lineno", 0) > HEAD.count("\n"))
    span = source.span(next(n for n in found if source.segment(n) == at))
    rule = catalogue.load().match(failure := Failure(*error, "trace", span, "body"))
    assert rule is not None
    return source, list(rule.candidates(failure, source))


def lines(source: SourceFile, candidate: Candidate) -> str:
    """What a candidate makes of the body."""
    return "\n".join(line[4:] for line in source.edited(candidate.edits).text.removeprefix(HEAD).splitlines())


WRITTEN = {
    "a sum": ("o_ref[...] = x_ref[...] + o_ref", "x_ref[...] + o_ref", SUM, "o_ref[...] = x_ref[...] + o_ref[...]"),
    "both sides": ("v = x_ref + o_ref", "x_ref + o_ref", SUM, "v = x_ref[...] + o_ref[...]"),
    "not an array": ("v = x_ref[0]\nw = v + o_ref", "v + o_ref", SUM, "v = x_ref[0]\nw = v + o_ref[...]"),
    "another name": ("r = x_ref\nw = r + 1", "r + 1", SUM, "r = x_ref\nw = r[...] + 1"),
    "a place": ("v = x_ref.at[0].at[1:] + 1", "x_ref.at[0].at[1:] + 1", SUM, "v = x_ref.at[0][1:] + 1"),
    "a place with a name": ("r = x_ref.at[0]\nw = r + 1", "r + 1", SUM, "r = x_ref.at[0]\nw = r[...] + 1"),
    "a comparison": ("v = 0 < x_ref", "0 < x_ref", SUM, "v = 0 < x_ref[...]"),
    "an update": ("v = 1\nv += x_ref", "v += x_ref", SUM, "v = 1\nv += x_ref[...]"),
    "a store": ("o_ref[0] = x_ref", "o_ref[0]", REF, "o_ref[0] = x_ref[...]"),
    "a list": ("v = jnp.stack([x_ref, 1])", "jnp.stack([x_ref, 1])", REF, "v = jnp.stack([x_ref[...], 1])"),
    "a keyword": ("v = jnp.sum(a=x_ref)", "jnp.sum(a=x_ref)", REF, "v = jnp.sum(a=x_ref[...])"),
    "a method": ("v = x_ref.sum()", "x_ref.sum()", REF, "v = x_ref[...].sum()"),
    "the position that JAX names": (
        "v = jnp.where(x_ref[...], o_ref, x_ref)", "jnp.where(x_ref[...], o_ref, x_ref)", SECOND,
        "v = jnp.where(x_ref[...], o_ref[...], x_ref)",
    ),
    "a barrier": ("plgpu.barrier_wait(barriers[0])", "plgpu.barrier_wait(barriers[0])", CALL,
                  "plgpu.barrier_wait(barriers.at[0])"),
    "a barrier with a name": ("b = barriers[0]\nplgpu.barrier_wait(b)", "plgpu.barrier_wait(b)", CALL,
                              "b = barriers.at[0]\nplgpu.barrier_wait(b)"),
    "all of a Ref": ("f(x_ref[...], o_ref[0, 1], barrier=b)", "f(x_ref[...], o_ref[0, 1], barrier=b)", CALL,
                     "f(x_ref, o_ref.at[0, 1], barrier=b)"),
    "the accumulator": ("plgpu.wgmma(acc[...], x_ref[0], o_ref)", "plgpu.wgmma(acc[...], x_ref[0], o_ref)", ACCUMULATOR,
                        "plgpu.wgmma(acc, x_ref[0], o_ref)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_meant_is_written(name: str) -> None:
    text, at, error, expected = WRITTEN[name]
    source, candidates = proposed(text, at, error)
    assert lines(source, candidates[0]) == expected


LEFT = {
    "no Ref": ("v = jnp.ones(4)\nw = v + 1", "v + 1", SUM, "load what lies in the Ref"),
    "nothing that is loaded": ("plgpu.barrier_wait(barriers)", "plgpu.barrier_wait(barriers)", CALL, "give it the Ref"),
    "an array that is also used": (
        "b = barriers[0]\nplgpu.barrier_wait(b)\no_ref[0] = b", "plgpu.barrier_wait(b)", CALL, "give it the Ref",
    ),
    "an operand in registers": ("plgpu.wgmma(acc, x_ref[0])", "plgpu.wgmma(acc, x_ref[0])", ACCUMULATOR, "give it the"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_known_is_left(name: str) -> None:
    text, at, error, why = LEFT[name]
    with pytest.raises(NoFix) as caught:
        proposed(text, at, error)
    assert why in str(caught.value)


def test_a_helper_gets_every_way_to_read_it() -> None:
    source, candidates = proposed("def f(a, b):\n    return a + b", "a + b", SUM)
    assert [lines(source, c).splitlines()[1].strip() for c in candidates] == [
        "return a[...] + b[...]",
        "return a[...] + b",
        "return a + b[...]",
    ]
