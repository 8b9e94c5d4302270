"""A program cut down to one of its errors."""

import ast
from collections.abc import Sequence

import pytest

from mgpu_fix.model import Failure, Observation, Span
from mgpu_fix.reproduce import NoReproducerError, argument, reproducer
from mgpu_fix.source import SourceFile

PROGRAM = """\
from __future__ import annotations
import os, sys
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

TABLE = np.arange(3)
OTHER = np.arange(4)
print("hello")


@plgpu.kernel(out_type=f(TABLE))
def kernel(x_ref):  # it breaks
    pass


def unused(): pass


if __name__ == "__main__":
    y = kernel(1)
    print(y)
"""
ERROR = Failure("ValueError", "it breaks at line 13", "lower", Span("/p.py", 13), "kernel", raised_at="a.py:1 in b")


def cut(needs: Sequence[str], failure: Failure = ERROR, examples: Sequence[tuple[str, str]] = ()) -> str:
    """The script for a program that raises ``failure`` where all of ``needs`` stand in it."""

    def run(data: bytes) -> Observation:
        text = data.decode()
        ast.parse(text)
        seen = Failure(failure.type, failure.message.replace("13", "7"), "lower", raised_at="x")
        return Observation("ok", failures=(seen,) if all(part in text for part in needs) else ())

    return reproducer(SourceFile("/p.py", PROGRAM.encode()), failure, run, examples)


KERNEL = """\
@plgpu.kernel(out_type=f(TABLE))
def kernel(x_ref):  # it breaks
    pass
"""


def test_what_it_needs_stays_and_it_asks_for_no_gpu() -> None:
    script = cut(["kernel", ".lower(", "TABLE = "])
    assert script.startswith("# JAX , a.py:1 in b:\n# ValueError: it breaks at line 13\nimport jax\n")
    assert KERNEL in script
    assert "y = kernel(1)" in script
    assert script.endswith('jax.jit(lambda: (print(y))).trace().lower(lowering_platforms=("cuda",))\n')
    for gone in ("OTHER", "hello", "unused", "import os"):
        assert gone not in script


def test_the_kernel_itself_is_tried_first() -> None:
    script = cut(["kernel", ".lower("], examples=[("kernel", argument("f32[2,3]"))])
    end = 'jax.jit(kernel).trace(jax.ShapeDtypeStruct((2,3,), "float32")).lower(lowering_platforms=("cuda",))\n'
    assert script.endswith(end)
    assert "y =" not in script


def test_an_error_of_a_declaration_needs_no_call() -> None:
    script = cut(["TABLE", "kernel"], Failure("TypeError", "m", "import", Span("/p.py", 11), raised_at="x"))
    assert script.rstrip().endswith("pass")
    assert "lower" not in script


def test_a_statement_that_matters_for_another_reason_stays() -> None:
    assert 'print("hello")' in cut(["kernel", ".lower(", "hello"])


def test_where_nothing_leads_to_it_that_is_said() -> None:
    with pytest.raises(NoReproducerError, match="no statement"):
        cut(["nowhere"])
    with pytest.raises(NoReproducerError, match="raises nothing"):
        cut(["kernel"], Failure("ReturnedValueDropped", "m", "trace"))


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("f32[128]", 'jax.ShapeDtypeStruct((128,), "float32")'),
        ("bf16[2,3]", 'jax.ShapeDtypeStruct((2,3,), "bfloat16")'),
        ("i8[]", 'jax.ShapeDtypeStruct((), "int8")'),
        ("u32[4]", 'jax.ShapeDtypeStruct((4,), "uint32")'),
        ("bool[4]", 'jax.ShapeDtypeStruct((4,), "bool")'),
        ("float8_e4m3fn[4]", 'jax.ShapeDtypeStruct((4,), "float8_e4m3fn")'),
    ],
)
def test_types_as_code(spec: str, code: str) -> None:
    assert argument(spec) == code
