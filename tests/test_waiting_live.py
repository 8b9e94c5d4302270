"""A fix after which a kernel waits for ever is not taken, though the kernel lowers."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from mgpu_fix.catalogue import Catalogue, Rule, Signature
from mgpu_fix.engine import Engine
from mgpu_fix.model import WAITS, Candidate, Edit, Failure, Observation
from mgpu_fix.observe import Observer, Program
from mgpu_fix.problems import Options
from mgpu_fix.source import SourceFile

pytestmark = pytest.mark.live

TEXT = """\
import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((128,), jnp.float32), scratch_types=[plgpu.Barrier(num_arrivals=2)]
)
def kernel(x_ref, o_ref, barrier):
    plgpu.barrier_arrive(barrier)
    return x_ref[...] + 1
kernel(jnp.arange(128, dtype=jnp.float32))
"""


class Waiting(Rule):
    """Stores what is returned, and waits for an arrival that never comes."""

    code, name, jax = "XXX1", "waiting", "any"
    signatures = (Signature("ReturnedValueDropped", ""),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        start = source.text.index("return")
        text = "plgpu.barrier_wait(barrier)\n    o_ref[...] = "
        yield Candidate("Wait", (Edit(start, start + len("return "), text),))


def test_a_fix_that_waits_for_ever_is_not_taken(observer: Observer, tmp_path: Path) -> None:
    path = str(tmp_path / "kernel.py")
    Path(path).write_text(TEXT)
    program = Program(path, budget=3.0)

    def run(texts: Mapping[str, bytes], draws: tuple[tuple[str, ...], ...] | None) -> Observation:
        return observer.observe(program, texts, draws)

    source = SourceFile(path, TEXT.encode())
    outcome = Engine(run, Catalogue((Waiting(),)), {path: source}, Options(unsafe=True)).repair()
    assert not outcome.fixes
    assert [t.outcome for r in outcome.remaining for t in r.tried] == [f"kernel does not come to its end: {WAITS}"]
