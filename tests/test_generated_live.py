"""Kernels from a small grammar, broken in a known way and repaired: what was repaired computes what it did unbroken."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from mgpu_fix import verify
from mgpu_fix.catalogue import load
from mgpu_fix.engine import Engine
from mgpu_fix.model import Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.source import SourceFile

pytestmark = pytest.mark.live

HEAD = """\
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

"""


@dataclass(frozen=True)
class Kernel:
    """A kernel's source, before and after it was broken."""

    unbroken: str
    broken: str


OPERANDS = st.sampled_from(["{x}", "{y}", "2.0", "{x} * 2", "({y} + 1.0)"])
UNARY = st.sampled_from(["{0}", "-{0}", "({0}) ** 2", "jnp.exp({0})", "jnp.maximum({0}, 0.5)", "jnp.abs({0})"])
BINARY = st.sampled_from(
    ["{0} + {1}", "{0} * {1}", "{0} - ({1})", "jnp.minimum({0}, {1})", "jnp.where({0} > {1}, {0}, 1.0)"]
)
#: where the store goes, and what is loaded for it: the index of the output, of x and of y, which has no first dimension
PLACES = st.sampled_from(
    [
        ("...", "...", "..."),
        (":, pl.ds(0, 64)", ":, 64:", "pl.ds(64, 64)"),
        ("1", "2", "..."),
        ("pl.ds(2, 2), :64", "0:2, pl.ds(0, 64)", ":64"),
    ]
)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """An array computed from ``{x}``, and perhaps ``{y}``."""
    first = draw(UNARY).format("{x}")
    return draw(BINARY).format(f"({first})", draw(OPERANDS)) if draw(st.booleans()) else first


def kernel(body: str, parameters: str = "", decorator: str = "") -> str:
    """A script with one kernel of two inputs that calls it."""
    return (
        f"{HEAD}\n@functools.partial(\n    plgpu.kernel,\n    out_type=jax.ShapeDtypeStruct((4, 128), jnp.float32),\n"
        f"{decorator})\ndef kernel(x_ref, y_ref, o_ref{parameters}):\n{indent(body, '    ')}\n\n"
        "kernel(jnp.linspace(-1, 1, 512).reshape(4, 128), jnp.linspace(0, 1, 128))\n"
    )


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """A kernel that stores once, with the store in a warp-level region, or returned, or its scratch misdeclared."""
    expression = draw(expressions())
    whole = expression.format(x="x_ref[...]", y="y_ref[...]")
    match draw(st.sampled_from(["warp", "warp", "local", "return", "axes"])):
        case "return":
            return Kernel(kernel(f"o_ref[...] = {whole}"), kernel(f"return {whole}"))
        case "axes":
            threads = draw(st.booleans())
            decorator = (
                '    num_threads=2,\n    thread_name="wg",\n' if threads else '    grid=(1,), grid_names=("g",),\n'
            )
            right, wrong = ('"wg"', '("c", "wg")') if threads else ("()", '"g"')
            scope = "pl.run_scoped(body, plgpu.SMEM((128,), jnp.float32), collective_axes={})"
            body = f"def body(smem):\n    o_ref[...] = {whole}\n{scope}"
            return Kernel(kernel(body.format(right), "", decorator), kernel(body.format(wrong), "", decorator))
        case "local":
            store = f"value = {whole}\no_ref[...] = value + y_ref[...]"
        case _:
            out, x, y = draw(PLACES)
            store = f"o_ref[{out}] = {expression.format(x=f'x_ref[{x}]', y=f'y_ref[{y}]')}"
    guard = draw(st.sampled_from(["warp_id == 0", "warp_id == 3", "(warp_id == 1) & (y_ref.shape[0] > 0)"]))
    clear = "o_ref[...] = jnp.zeros((4, 128), jnp.float32)\n"
    region = f"@plgpu.warp_map\ndef _(warp_id):\n    @pl.when({guard})\n    def _():\n{indent(store, ' ' * 8)}"
    return Kernel(kernel(clear + store), kernel(clear + region))


@settings(max_examples=30, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=kernels())
def test_what_is_repaired_computes_what_it_did_unbroken(case: Kernel, observer: Observer, tmp_path: Path) -> None:
    path = str(tmp_path / "kernel.py")
    Path(path).write_text(case.broken)
    program = Program(path)
    note(case.broken)

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    outcome = Engine(run, load(), {path: SourceFile(path, case.broken.encode())}).repair()
    assert outcome.first.failures
    if not outcome.fixes:
        assert all(item.reason for item in outcome.remaining)
        return
    note(outcome.texts[path].text)
    assert not outcome.remaining
    unbroken = observer.observe(program, {path: case.unbroken.encode()})
    assert unbroken.status == "ok"
    for verdict in verify.judge(unbroken, outcome.last, verify.compare_files):
        assert verdict.after is not None and verdict.after.stage == "run"
        assert verdict.agrees is not False, verdict.why
