"""MGF903: what becomes of pl.pallas_call, what is left alone, and why. Nothing here imports JAX."""

import textwrap

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Facts, Failure
from mgpu_fix.source import SourceFile
from mgpu_fix.upgrade import Upgraded, upgrade
from mgpu_fix.versions import Window, parse

IMPORTS = """\
import functools
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
"""
BODY = """
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...]
"""
FAILURE = Failure("AssertionError", "", "lower", kernel="body", facts=Facts(callee="pl.pallas_call"), jax="0.12.0")
P = "compiler_params=plgpu.CompilerParams()"
BLOCKS = f"in_specs=[pl.BlockSpec((64,), lambda i: i)], out_specs=pl.BlockSpec((64,), lambda i: i), {P}"


def file(text: str, newline: str = "\n") -> SourceFile:
    return SourceFile("k.py", (IMPORTS + textwrap.dedent(text)).replace("\n", newline).encode())


def candidate(text: str, failure: Failure = FAILURE) -> Candidate:
    rule = catalogue.load().find("MGF903")
    assert rule is not None
    [only] = rule.candidates(failure, file(text))
    return only


def fixed(text: str) -> str:
    return file(text).edited(candidate(text).edits).text.removeprefix(IMPORTS)


def upgraded(text: str, to: str = "0.12.0") -> Upgraded:
    return upgrade(file(text), catalogue.load().rules, Window(to=parse(to)), Applicability.SAFE)


#: what a call becomes where no pipeline is needed
DIRECT = {
    "keywords in their order": (
        f"f = pl.pallas_call(body, name='n', out_shape=O, debug=True, {P})",
        "f = plgpu.kernel(body, kernel_name='n', out_type=O, debug=True)",
    ),
    "all by keyword": (
        f"f = pl.pallas_call(kernel=body, {P}, out_shape=O)",
        "f = plgpu.kernel(body=body, out_type=O)",
    ),
    "positional output": (f"f = pl.pallas_call(body, O, {P})", "f = plgpu.kernel(body, out_type=O)"),
    "what says nothing": (
        f"f = pl.pallas_call(body, O, grid=(), in_specs=None, interpret=False, input_output_aliases={{}}, {P})",
        "f = plgpu.kernel(body, out_type=O)",
    ),
    "a list of outputs": (f"f = pl.pallas_call(body, [O], {P})", "f = plgpu.kernel(body, out_type=(O,))"),
    "a list by name": (
        f"outs = [O]\nf = pl.pallas_call(body, outs, {P})",
        "outs = [O]\nf = plgpu.kernel(body, out_type=tuple(outs))",
    ),
    "scratch, also by name": (
        f"f = pl.pallas_call(body, O, scratch_shapes=dict(x_ref=S), {P})",
        "f = plgpu.kernel(body, out_type=O, scratch_types=dict(x_ref=S))",
    ),
    "parameters that say something": (
        "f = pl.pallas_call(body, O, compiler_params=plgpu.CompilerParams(max_concurrent_steps=2, approx_math=True))",
        "f = plgpu.kernel(body, out_type=O, compiler_params=plgpu.CompilerParams(approx_math=True))",
    ),
    "parameters by name": (
        "Q = plgpu.CompilerParams(approx_math=True)\nf = pl.pallas_call(body, O, compiler_params=Q)",
        "Q = plgpu.CompilerParams(approx_math=True)\nf = plgpu.kernel(body, out_type=O, compiler_params=Q)",
    ),
    "a backend": (
        "y = pl.pallas_call(body, out_shape=O, backend='mosaic_gpu')(x)",
        "y = plgpu.kernel(body, out_type=O)(x)",
    ),
    "a partial": (
        f"f = functools.partial(pl.pallas_call, out_shape=O, {P})(body)",
        "f = functools.partial(plgpu.kernel, out_type=O)(body)",
    ),
    "all in GMEM": (
        f"s = pl.BlockSpec(memory_space=plgpu.GMEM)\nf = pl.pallas_call(body, O, in_specs=[s], out_specs=s, {P})",
        "f = plgpu.kernel(body, out_type=O)",
    ),
    "its lines and comments": (
        f"""
        f = pl.pallas_call(
            body,  # copies
            out_shape=O,
            # for Hopper
            {P},
        )
        """,
        """
        f = plgpu.kernel(
            body,  # copies
            out_type=O,
            # for Hopper
        )
        """,
    ),
}

#: the function around the body, and the call, for what runs on blocks
PIPELINED = {
    "names that are taken": (
        f"""
        def run(i):
            return pl.pallas_call(body, O, grid=(4,), {BLOCKS.replace("(64,)", "(i,)")})(i)
        """,
        """
        def run(i):
            def body_pipeline(*refs):
                i_2 = lax.axis_index("i")
                plgpu.emit_pipeline(
                    lambda _, *blocks: body(*blocks),
                    grid=(),
                    in_specs=[pl.BlockSpec((i,), lambda: i_2)],
                    out_specs=[pl.BlockSpec((i,), lambda: i_2)],
                )(*refs)

            return plgpu.kernel(body_pipeline, out_type=O, grid=(4,), grid_names=("i",))(i)
        """,
    ),
    "a number as grid, and no inputs": (
        f"f = pl.pallas_call(body, O, grid=4, in_specs=[], out_specs=[pl.BlockSpec((64,), lambda i: i)], {P})",
        """

        def body_pipeline(*refs):
            i = lax.axis_index("i")
            plgpu.emit_pipeline(
                lambda _, *blocks: body(*blocks),
                grid=(),
                in_specs=[],
                out_specs=[pl.BlockSpec((64,), lambda: i)],
            )(*refs)


        f = plgpu.kernel(body_pipeline, out_type=O, grid=(4,), grid_names=("i",))
        """,
    ),
    "a delayed release": (
        "f = pl.pallas_call(body, O, grid=(4,), "
        + BLOCKS.replace(
            "Params()", 'Params(dimension_semantics=["sequential"], max_concurrent_steps=N, delay_release=1)'
        )
        + ")",
        """

        def body_pipeline(*refs):
            plgpu.emit_pipeline(
                lambda _, *blocks: body(*blocks),
                grid=(4,),
                in_specs=[plgpu.BlockSpec((64,), lambda i: i, delay_release=1)],
                out_specs=[pl.BlockSpec((64,), lambda i: i)],
                max_concurrent_steps=N,
            )(*refs)


        f = plgpu.kernel(body_pipeline, out_type=O)
        """,
    ),
    "one side with specs": (
        "import jax\nf = pl.pallas_call(body, jax.ShapeDtypeStruct((4,), D), grid=(4,), "
        f"in_specs=[pl.BlockSpec((None, 64), lambda *_: (0, 0))], {P})",
        """\
        import jax


        def body_pipeline(*refs):
            plgpu.emit_pipeline(
                lambda _, *blocks: body(*blocks),
                grid=(),
                in_specs=[pl.BlockSpec((None, 64), lambda *_: (0, 0))],
                out_specs=[pl.BlockSpec()],
            )(*refs)


        f = plgpu.kernel(body_pipeline, out_type=jax.ShapeDtypeStruct((4,), D), grid=(4,), grid_names=("d0",))
        """,
    ),
}

LEFT = {
    "TPU": "from jax.experimental.pallas import tpu as pltpu\n"
    "f = pl.pallas_call(body, O, grid=(4,), compiler_params=pltpu.CompilerParams())",
    "Triton": "from jax.experimental.pallas import triton as plt\n"
    "f = pl.pallas_call(body, O, compiler_params=plt.CompilerParams())",
    "Triton by its backend": "f = pl.pallas_call(body, O, backend='triton')",
    "another plgpu": "from jax.experimental.pallas import triton as plgpu\n"
    "def g():\n    return pl.pallas_call(body, O, compiler_params=plgpu.CompilerParams())",
    "any backend": "f = pl.pallas_call(body, O)\ng = pl.pallas_call(body, O, interpret=True)",
    "parameters from elsewhere": "def g(params):\n    return pl.pallas_call(body, O, compiler_params=params)",
    "under a condition": f"if jax.__version__ < '0.11':\n    f = pl.pallas_call(body, O, {P})",
    "caught": f"try:\n    f = pl.pallas_call(body, O, {P})\nexcept TypeError:\n    f = None",
}

REASONS = {
    "aliases": (f"f = pl.pallas_call(body, O, input_output_aliases={{0: 0}}, {P})", "input_output_aliases="),
    "metadata": (f"f = pl.pallas_call(body, O, metadata={{'a': 'b'}}, {P})", "metadata="),
    "spread": (f"f = pl.pallas_call(body, O, {P}, **more)", "not all arguments"),
    "a grid from elsewhere": (
        f"def g(n):\n    return pl.pallas_call(body, O, grid=n, {BLOCKS})(n)",
        "the grid at line",
    ),
    "a body from elsewhere": (f"f = pl.pallas_call(other.body, O, grid=(4,), {BLOCKS})", "not defined in this file"),
    "specs from elsewhere": (f"f = pl.pallas_call(body, O, grid=(4,), in_specs=specs(), {P})", "not made in this file"),
    "specs of pytrees": (
        f"f = pl.pallas_call(body, O, grid=(4,), in_specs=[[pl.BlockSpec()]], {P})",
        "not one for each array",
    ),
    "other semantics": (
        f"f = pl.pallas_call(body, O, grid=(4,), {BLOCKS.replace('Params()', 'Params(dimension_semantics=D)')})",
        "dimension_semantics",
    ),
    "collective axes": (
        f"f = pl.pallas_call(body, O, grid=(4,), {BLOCKS.replace('i: i)]', 'i: i, collective_axes=(A,))]')})",
        "collective_axes=",
    ),
    "an index map with more": (
        f"f = pl.pallas_call(body, O, grid=(4,), {BLOCKS.replace('lambda i: i)]', 'lambda i, n=1: i)]')})",
        "one index for each axis",
    ),
    "a spec that others use": (
        "s = pl.BlockSpec((64,), lambda i: i)\n"
        f"f = pl.pallas_call(body, O, grid=(4,), in_specs=[s], out_specs=s, {P})\ng(s)",
        "also used",
    ),
    "a value that changes": (
        f"n = 1\nf = pl.pallas_call(body, O, grid=(4,), {BLOCKS.replace('(64,)', '(n,)')})\nn = 2",
        "may have changed",
    ),
    "a comprehension": (
        f"fs = [pl.pallas_call(body, O, grid=(4,), {BLOCKS.replace('(64,)', '(n,)')}) for n in N]",
        "comprehension",
    ),
    "arguments added to a partial": (
        f"call = functools.partial(pl.pallas_call, {P})\nf = call(body, out_shape=O, grid=(4,))",
        "added",
    ),
    "an interpreter": (f"f = pl.pallas_call(body, O, grid=(4,), interpret=I, {BLOCKS})", "interpret="),
    "scratch from elsewhere": (
        f"f = pl.pallas_call(body, O, grid=(4,), scratch_shapes=S, {BLOCKS})",
        "which of its Refs are scratch",
    ),
}

ASKING = """
def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] + {}
"""


def dedented(text: str) -> str:
    return textwrap.dedent(text)


@pytest.mark.parametrize(("before", "after"), DIRECT.values(), ids=DIRECT)
def test_a_kernel_without_blocks(before: str, after: str) -> None:
    assert fixed(BODY + dedented(before)) == BODY + dedented(after)
    assert not candidate(BODY + dedented(before)).needs_oracle


@pytest.mark.parametrize(("before", "after"), PIPELINED.values(), ids=PIPELINED)
def test_a_kernel_with_blocks(before: str, after: str) -> None:
    assert fixed(BODY + dedented(before)).rstrip() == (BODY + dedented(after)).rstrip()
    assert candidate(BODY + dedented(before)).needs_oracle


@pytest.mark.parametrize(("before", "after"), [*DIRECT.values(), *PIPELINED.values()], ids=[*DIRECT, *PIPELINED])
def test_upgrade_does_the_same_and_once_is_enough(before: str, after: str) -> None:
    new = upgraded(BODY + dedented(before))
    assert new.source.text.removeprefix(IMPORTS).rstrip() == (BODY + dedented(after)).rstrip()
    assert not new.remaining
    again = upgrade(new.source, catalogue.load().rules, Window(), Applicability.SAFE)
    assert again.source.data == new.source.data


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_is_left_alone(text: str) -> None:
    new = upgraded(BODY + text)
    assert new.source.data == file(BODY + text).data
    assert not [r for r in new.remaining if r.code == "MGF903"]
    with pytest.raises(NoFix, match=r"no call of pl\.pallas_call that surely is for Mosaic GPU"):
        candidate(BODY + text)


@pytest.mark.parametrize(("text", "reason"), REASONS.values(), ids=REASONS)
def test_what_is_not_understood_is_told(text: str, reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        candidate(BODY + text)
    new = upgraded(BODY + text)
    assert new.source.data == file(BODY + text).data
    assert reason in " ".join(r.reason for r in new.remaining)


def test_others_change_beside_one_that_cannot() -> None:
    text = f"{BODY}f = pl.pallas_call(body, O, {P})\ng = pl.pallas_call(body, O, {P}, **more)\n"
    new = upgraded(text)
    assert new.source.text.endswith(f"f = plgpu.kernel(body, out_type=O)\ng = pl.pallas_call(body, O, {P}, **more)\n")
    assert [r.line for r in new.remaining] == [9]


def test_two_calls_get_functions_of_their_own() -> None:
    text = f"{BODY}f = pl.pallas_call(body, O, grid=(4,), {BLOCKS})\ng = pl.pallas_call(body, O, grid=(8,), {BLOCKS})\n"
    assert "body_pipeline, out_type=O, grid=(4,)" in fixed(text)
    assert "body_pipeline_2, out_type=O, grid=(8,)" in fixed(text)


@pytest.mark.parametrize(("to", "changes"), [("0.10.2", False), ("0.11.0", False), ("0.11.2", True)])
def test_it_depends_on_the_version(to: str, changes: bool) -> None:
    text = f"{BODY}f = pl.pallas_call(body, O, {P})\n"
    assert (upgraded(text, to).source.data != file(text).data) is changes


def test_a_backend_is_gone_earlier() -> None:
    text = f"{BODY}f = pl.pallas_call(body, O, backend='mosaic_gpu')\n"
    assert upgraded(text, "0.10.2").source.text.endswith("f = plgpu.kernel(body, out_type=O)\n")


@pytest.mark.parametrize(
    ("asked", "semantics", "becomes", "parameters"),
    [
        ("pl.program_id(0)", "parallel", 'lax.axis_index("i")', ""),
        ("pl.num_programs(axis=0)", "parallel", 'lax.axis_size("i")', ""),
        ("pl.program_id(0)", "sequential", "indices[0]", "indices, "),
        ("pl.num_programs(0)", "sequential", "4", ""),
    ],
)
def test_the_place_in_the_grid(asked: str, semantics: str, becomes: str, parameters: str) -> None:
    blocks = BLOCKS.replace("Params()", f"Params(dimension_semantics=['{semantics}'])")
    text = ASKING.format(asked) + f"y = pl.pallas_call(body, O, grid=(4,), {blocks})(x)\n"
    assert ASKING.replace("x_ref,", f"{parameters}x_ref,").format(becomes) in fixed(text)


@pytest.mark.parametrize(
    ("asked", "extra", "reason"),
    [
        ("pl.program_id(1)", "", "has no axis 1"),
        ("pl.program_id(n)", "", "which axis"),
        ("pl.program_id(0)", "g = body", "also used at line"),
    ],
)
def test_a_place_that_is_not_known(asked: str, extra: str, reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        candidate(ASKING.format(asked) + f"y = pl.pallas_call(body, O, grid=(4,), {BLOCKS})(x)\n{extra}\n")


def test_other_line_ends_and_indents_stay() -> None:
    body = "def run(x):\n  def body(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n"
    text = f"{body}  return pl.pallas_call(\n    body, O, grid=(4,),\n    {BLOCKS})(x)\n"
    twin = file(text, "\r\n")
    new = upgrade(twin, catalogue.load().rules, Window(), Applicability.SAFE).source.text
    assert new.replace("\r\n", "\n") == fixed_with_imports(text)
    assert new.count("\r\n") == new.count("\n")
    assert "\n    plgpu.emit_pipeline(\n      lambda" in new.replace("\r\n", "\n")


def fixed_with_imports(text: str) -> str:
    return file(text).edited(candidate(text).edits).text


@pytest.mark.parametrize("store", ["x_ref[...] = x_ref[...] * 2", "x_ref[0] += 1", "x_ref.at[0][...] = 2.0"])
def test_a_body_that_stores_to_its_input_gets_a_block_of_it(store: str) -> None:
    body = f"def body(x_ref, o_ref):\n    {store}\n    o_ref[...] = x_ref[...]\n"
    text = f"import jax\nf = pl.pallas_call(body, jax.ShapeDtypeStruct((4,), D), {P})"
    assert "emit_pipeline" in fixed(f"{body}{text}")
    assert "emit_pipeline" not in fixed(f"{BODY}{text}")
