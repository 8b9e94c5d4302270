"""Returned values that are certain without a run: every place that is told is one, and what is not certain is not."""

import pytest
from golden_cases import CASES, Case, name

from mgpu_fix.catalogue import load
from mgpu_fix.source import Names, SourceFile

HEAD = """\
import functools
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
"""


def evident(text: str) -> list[tuple[str, int, str]]:
    """Code, line and text of each place."""
    source = SourceFile("k.py", text.encode())
    found = [(rule.code, span) for rule in load().rules for span, _ in rule.evident(Names(source))]
    lines = text.splitlines()
    return [(code, s.line, lines[s.line - 1][s.column - 1 : s.end_column - 1]) for code, s in found]


BODY = "def body(x_ref, o_ref):\n    return x_ref[...] * 2\n"


@pytest.mark.parametrize(
    ("code", "place"),
    [
        (BODY + "pl.kernel(body, out_type=t, mesh=m)(x)\n", "return x_ref[...] * 2"),
        (BODY + "pl.pallas_call(body, out_shape=t)(x)\n", "return x_ref[...] * 2"),
        ("@plgpu.kernel(out_type=t)\n" + BODY, "return x_ref[...] * 2"),
        ("@functools.partial(plgpu.kernel, out_type=t)\n" + BODY, "return x_ref[...] * 2"),
        ("@pl.core_map(plgpu.WarpMesh(axis_name='w'))\n" + BODY, "return x_ref[...] * 2"),
        (BODY + "functools.partial(pl.kernel, out_type=t, mesh=m)(body)(x)\n", "return x_ref[...] * 2"),
        ("k = plgpu.kernel(lambda x_ref, o_ref: x_ref[...] + 1, out_type=t)\n", "x_ref[...] + 1"),
        (BODY.replace("x_ref[...] * 2", "o_ref") + "pl.kernel(body)\n", "return o_ref"),
        (BODY.replace("x_ref[...] * 2", "jnp.exp(y)") + "pl.kernel(body)\n", "return jnp.exp(y)"),
        (BODY.replace("return ", "y = ") + "    return y\npl.kernel(body)\n", "return y"),
        (
            BODY.replace("return ", "return {'a': ").replace("2\n", "2}\n") + "pl.kernel(body)\n",
            "return {'a': x_ref[...] * 2}",
        ),
    ],
)
def test_what_surely_is_returned_is_told(code: str, place: str) -> None:
    assert [(c, t) for c, _, t in evident(HEAD + code)] == [("MGF401", place)]


@pytest.mark.parametrize(
    "code",
    [
        # a value that may be None
        BODY.replace("x_ref[...] * 2", "helper(x_ref)") + "pl.kernel(body)\n",
        BODY.replace("x_ref[...] * 2", "pl.run_scoped(f, x_ref)") + "pl.kernel(body)\n",
        BODY.replace("return x_ref[...] * 2", "return") + "pl.kernel(body)\n",
        BODY.replace("x_ref[...] * 2", "None") + "pl.kernel(body)\n",
        # a way that may not be taken
        BODY.replace("return", "if flag:\n        return") + "pl.kernel(body)\n",
        BODY.replace("    return", "    if flag:\n        return\n    return") + "pl.kernel(body)\n",
        # no body of a kernel, or not that one
        BODY,
        BODY + "other(body)\n",
        BODY + "pl.kernel(other(body))\n",
        "@plgpu.kernel(out_type=t)\n@other\n" + BODY,
        BODY + BODY + "pl.kernel(body)\n",
        BODY + "plgpu.emit_pipeline(body, init_carry=0)\n",
        # what the parameter's name stands for is something else
        BODY.replace("return x_ref[...] * 2", "o_ref = f()\n    return o_ref") + "pl.kernel(body)\n",
        BODY.replace("    return x_ref[...] * 2", "    y = z\n    z = y\n    return y") + "pl.kernel(body)\n",
        BODY.replace("return x_ref", "yield x_ref") + "    return 1\npl.kernel(body)\n",
    ],
)
def test_what_is_not_certain_is_not_told(code: str) -> None:
    assert evident(HEAD + code) == []


def test_another_backend_is_not_ours() -> None:
    assert evident(HEAD.replace("mosaic_gpu", "tpu") + BODY + "pl.pallas_call(body)\n") == []


@pytest.mark.parametrize("case", CASES, ids=name)
def test_repaired_kernels_are_quiet(case: Case) -> None:
    assert evident(case.after.decode()) == []


def test_most_golden_cases_are_told() -> None:
    cases = [case for case in CASES if "MGF401" in case.path]
    assert sum(bool(evident(case.before.decode())) for case in cases) > len(cases) / 2
