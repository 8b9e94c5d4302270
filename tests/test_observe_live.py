"""Programs of every kind under the probe: they go on past a broken kernel, and what it meant has the right numbers."""

from pathlib import Path

import pytest

from mgpu_fix.model import WAITS, Observation
from mgpu_fix.observe import Observer, Program

pytestmark = pytest.mark.live

HEAD = """\
import os, sys
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

@pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
def double(x_ref, o_ref):
    return x_ref[...] * 2

x = jnp.arange(128, dtype=jnp.float32)
"""
RETURN_LINE = 11

#: each asserts its own numbers, so that a status of "ok" means that they were right
PROGRAMS = {
    "eager": "assert double(x)[3] == 6",
    "jit": "assert jax.jit(lambda x: double(x) + 1)(x)[3] == 7",
    "vmap": "assert jax.vmap(double)(jnp.stack([x, x + 1]))[1, 3] == 8",
    "scan": "assert lax.scan(lambda c, _: (double(c), 0), x, None, length=5)[0][1] == 32",
    "while": "assert lax.while_loop(lambda c: c[1] < 64, double, x)[1] == 64",
    "cond": "assert lax.cond(x[0] == 0, double, lambda v: v, x)[1] == 2",
    "custom_vjp": """
@jax.custom_vjp
def f(x):
    return double(x)
f.defvjp(lambda x: (f(x), None), lambda r, g: (g * 2,))
assert jax.grad(lambda x: f(x).sum())(x)[3] == 2""",
    "checkpoint": "assert jax.checkpoint(double)(x)[3] == 6",
    "thread": """
import threading
out = []
t = threading.Thread(target=lambda: out.append(double(x)))
t.start(); t.join()
assert out[0][3] == 6""",
    "aot": "assert jax.jit(double).lower(x).compile()(x)[3] == 6",
    "donation": "assert jax.jit(double, donate_argnums=0)(x + 0)[3] == 6",
    "shard_map": """
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
f = jax.shard_map(double, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
assert jax.jit(f)(x)[3] == 6""",
    "many calls": "for i in range(12): y = double(x + i)\nassert y[0] == 22",
    "stand-in device": """
assert jax.devices()[0].platform == "gpu" and jax.default_backend() == "gpu"
assert jax.devices("gpu")[0].compute_capability == "9.0" and jax.devices()[0].core_count == 132
assert jax.device_put(x, jax.devices()[0])[3] == 3
assert double(x)[3] == 6""",
    "platforms": "jax.config.update('jax_platforms', 'cuda'); assert double(x)[3] == 6",
    "stdin": "assert sys.stdin.read() == ''; assert double(x)[3] == 6",
    "main": "import __main__; assert __name__ == '__main__' and __main__.x is x and os.path.isabs(__file__); double(x)",
}


def observe(observer: Observer, folder: Path, text: str, **options: object) -> Observation:
    script = folder / "program.py"
    script.write_text(HEAD + text + "\n")
    return observer.observe(Program(str(script), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_the_program_goes_on_with_what_was_meant(observer: Observer, tmp_path: Path, text: str) -> None:
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.reason) == ("ok", ""), seen.output
    [failure] = seen.failures
    assert (failure.type, failure.stage, failure.kernel) == ("ValueError", "trace", "double")
    assert failure.span is not None
    assert (failure.span.line, failure.span.column, failure.span.end_column) == (RETURN_LINE, 5, 26)
    assert not failure.caught
    [call] = seen.calls
    assert call.stage == "trace"
    assert {n.state for n in call.numbers} == {"known"}
    assert all(n.stable for n in call.numbers)
    assert call.numbers[0].draw


def test_a_program_that_lowers_for_cuda_by_itself_gets_the_true_kernel(observer: Observer, tmp_path: Path) -> None:
    text = """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def triple(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 3
for f in (triple, jax.vmap(triple)):
    y = x if f is triple else x[None]
    assert "mosaic_gpu" in jax.jit(f).trace(y).lower(lowering_platforms=("cuda",)).as_text()"""
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.failures) == ("ok", ()), seen.output
    assert {c.stage for c in seen.calls} == {"run"}


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    double(x)\nexcept ValueError as e:\n    assert 'None' in str(e)\nelse:\n    raise SystemExit(5)",
        "import contextlib\nwith contextlib.suppress(ValueError):\n    double(x)\n    raise SystemExit(5)",
    ],
)
def test_an_expected_error_is_raised_and_told_as_caught(observer: Observer, tmp_path: Path, text: str) -> None:
    seen = observe(observer, tmp_path, text)
    assert seen.status == "ok", seen.reason
    assert [f.caught for f in seen.failures] == [True]


def test_an_error_caught_at_one_place_and_not_at_another_is_a_failure(observer: Observer, tmp_path: Path) -> None:
    seen = observe(observer, tmp_path, "try:\n    double(x)\nexcept ValueError: pass\nassert double(x)[3] == 6")
    assert seen.status == "ok", seen.reason
    assert [f.caught for f in seen.failures] == [False]


def test_every_failure_of_a_program_is_seen_in_one_run(observer: Observer, tmp_path: Path) -> None:
    text = """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def dropped(x_ref, o_ref):
    return x_ref[...] + 1
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
def unknown(x_ref, o_ref):
    o_ref[...] = pl.no_such_thing(x_ref)
assert double(dropped(x))[3] == 8
unknown(x)
double(x)"""
    seen = observe(observer, tmp_path, text)
    assert seen.status == "ok", seen.reason
    assert sorted((f.type, f.kernel) for f in seen.failures) == [
        ("AttributeError", "unknown"),
        ("ReturnedValueDropped", "dropped"),
        ("ValueError", "double"),
    ]


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("double(x); sys.exit(3)", "stopped", "it exits with 3"),
        ("double(x); assert False, 'boom'", "stopped", "AssertionError: boom"),
        ("double(x); os.abort()", "crashed", "signal 6 ended it"),
        ("double(x); os._exit(4)", "crashed", "it ended the interpreter with code 4"),
    ],
)
def test_how_a_program_ended_is_told_and_what_was_seen_is_kept(
    observer: Observer, tmp_path: Path, text: str, status: str, reason: str
) -> None:
    seen = observe(observer, tmp_path, text)
    assert (seen.status, seen.reason) == (status, reason)
    assert len(seen.failures) == 1


def test_a_program_that_hangs_is_ended_and_what_was_seen_is_kept(observer: Observer, tmp_path: Path) -> None:
    seen = observe(observer, tmp_path, "double(x)\nwhile True: pass", timeout=3.0)
    assert seen.status == "timeout"
    assert len(seen.failures) == 1


def test_a_variable_that_jax_has_read_already_is_set_before_it_starts(observer: Observer, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        'import os\nos.environ["JAX_ENABLE_X64"] = "1"\n' + HEAD + "assert jnp.arange(3.).dtype == 'float64'"
    )
    seen = observer.observe(Program(str(script)))
    assert seen.status == "ok", seen.output


def test_a_kernel_too_large_for_the_interpreter_is_lowered_and_marked(observer: Observer, tmp_path: Path) -> None:
    text = """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((512, 512), jnp.float32), grid=(32, 32), grid_names=("i", "j"))
def copy(x_ref, o_ref):
    at = (pl.ds(lax.axis_index("i") * 16, 16), pl.ds(lax.axis_index("j") * 16, 16))
    o_ref[at] = x_ref[at]
copy(jnp.ones((512, 512)))"""
    seen = observe(observer, tmp_path, text, budget=0.2)
    assert seen.status == "ok", seen.output
    [call] = seen.calls
    assert call.stage == "run"
    assert [(n.state, n.why) for n in call.numbers] == [("tainted", "too large to interpret")]


def test_a_kernel_that_waits_for_ever_is_not_waited_for(observer: Observer, tmp_path: Path) -> None:
    text = """
@plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), scratch_types=[plgpu.Barrier(num_arrivals=2)])
def kernel(x_ref, o_ref, barrier):
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)
    o_ref[...] = x_ref[...]
kernel(x)
print("on")"""
    seen = observe(observer, tmp_path, text, budget=1.0)
    [call] = seen.calls
    assert "on" in seen.output
    assert [(n.state, n.why) for n in call.numbers] == [("tainted", WAITS)]


def test_kernels_that_differ_in_what_they_close_over_are_told_apart(observer: Observer, tmp_path: Path) -> None:
    text = """
def make(k):
    def scaled(x_ref, o_ref):
        return x_ref[...] * k
    return pl.kernel(scaled, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
assert make(2.0)(x)[1] == 2 and make(3.0)(x)[1] == 3"""
    seen = observe(observer, tmp_path, text)
    assert seen.status == "ok", seen.output
    assert [c.number for c in seen.calls] == [0, 1]
    assert [n.state for c in seen.calls for n in c.numbers] == ["known", "known"]


def test_a_kernel_is_called_by_name_and_shape_or_with_the_examples(observer: Observer, tmp_path: Path) -> None:
    named = observe(observer, tmp_path, "", call="double", args=("f32[128]",))
    assert [c.avals for c in named.calls] == [("f32[128]",)]
    script = "kernel = double\ndef example_args():\n    return (x,)"
    assert len(observe(observer, tmp_path, script).calls) == 1
    assert observe(observer, tmp_path, "").calls == ()
    wrong = observe(observer, tmp_path, "", call="triple", args=("f32[128]",))
    assert (wrong.status, wrong.reason) == (
        "blocked",
        "it defines no function 'triple'; --call names one at module level",
    )
    shape = observe(observer, tmp_path, "", call="double", args=("f32(128)",))
    assert (shape.status, shape.reason[:27]) == ("blocked", "--arg 'f32(128)' is no type")


def test_the_overlay_is_seen_by_all_who_read_source(observer: Observer, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    script = tmp_path / "program.py"
    script.write_text("raise SystemExit(7)  # pallas\n")
    patched = """\
import inspect, linecache, helper  # pallas
assert helper.VALUE == 2
assert open(helper.__file__).read() == "VALUE = 2\\n"
assert inspect.getsource(helper) == "VALUE = 2\\n"
assert linecache.getline(__file__, 1).startswith("import inspect")
"""
    texts = {str(script): patched.encode(), str(tmp_path / "helper.py"): b"VALUE = 2\n"}
    seen = observer.observe(Program(str(script)), texts)
    assert (seen.status, seen.exit_code) == ("ok", 0), seen.output
    assert script.read_text() == "raise SystemExit(7)  # pallas\n"
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_copy_that_may_have_been_committed_is_no_failure(observer: Observer, tmp_path: Path) -> None:
    text = """
@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32), scratch_types=(plgpu.SMEM((2, 128), jnp.float32),)
)
def kernel(x_ref, o_ref, smem):
    smem[0] = x_ref[0]
    plgpu.commit_smem()
    smem[1] = x_ref[1]
    plgpu.copy_smem_to_gmem(smem.at[0], o_ref.at[0])
    @pl.when(x_ref[0, 0] == 0)
    def _():
        plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(smem.at[1], o_ref.at[1])
    plgpu.wait_smem_to_gmem(0)
kernel(jnp.stack([x, x]))"""
    assert not observe(observer, tmp_path, text).failures


STEPS = """
@plgpu.kernel(
    out_type=jax.ShapeDtypeStruct((2, 128), jnp.float32), scratch_types=(plgpu.SMEM((2, 128), jnp.float32),)
)
def kernel(x_ref, o_ref, smem):
    smem[...] = x_ref[...]
    plgpu.commit_smem()
    @pl.loop(0, STEPS)
    def _(i):
        plgpu.copy_smem_to_gmem(smemFROM, o_refFROM)
        plgpu.wait_smem_to_gmem(0)
        smemTO = x_refTO * 2
kernel(jnp.stack([x, x]))"""


@pytest.mark.parametrize(
    ("steps", "copied", "stored", "seen"),
    [
        ("2", "", "[...]", True),
        ("1", "", "[...]", False),
        ("2", ".at[i]", "[...]", True),
        ("2", ".at[i]", "[i]", False),
    ],
)
def test_what_one_step_of_a_loop_stores_the_next_one_may_copy(
    steps: str, copied: str, stored: str, seen: bool, observer: Observer, tmp_path: Path
) -> None:
    text = STEPS.replace("STEPS", steps).replace("FROM", copied).replace("TO", stored)
    assert [f.type for f in observe(observer, tmp_path, text).failures] == ["MissingCommit"] * seen


ONE_KERNEL = """
def scale(x, k):
    parameters = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)
    spec = plgpu.BlockSpec((64,), lambda i: (i,))
    def body(x_ref, o_ref):
        def block(_, x_smem, o_smem):
            o_smem[...] = x_smem[...] * k[0][0]
        plgpu.emit_pipeline(block, grid=(2,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), compiler_params=parameters)(x)
"""


def test_a_kernel_that_is_made_anew_for_each_call_is_one_and_one_that_differs_deep_inside_is_another(
    observer: Observer, tmp_path: Path
) -> None:
    same = observe(observer, tmp_path, ONE_KERNEL + "scale(x, [[2.0]])\nscale(x + 1, [[2.0]])")
    assert len(same.calls) == 1
    other = observe(observer, tmp_path, ONE_KERNEL + "scale(x, [[2.0]])\nscale(x, [[3.0]])\nscale(x, [[2.0, 3.0]])")
    assert len(other.calls) == 3
