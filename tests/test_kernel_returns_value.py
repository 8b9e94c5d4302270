"""MGF401: what is stored, what is deleted, and what is left alone. Nothing here imports JAX."""

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mgpu_fix import catalogue
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Facts, Failure, Function, Param, Returned, Tree
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import may_write
from mgpu_fix.source.names import bare_name

GOLDEN = Path(__file__).parents[1] / "golden" / "MGF401-kernel-returns-value"
PATH = "kernel.py"


def leaf(*shape: int, dtype: str = "float32", ref: str | None = None) -> Tree:
    return Tree("leaf", shape=shape, dtype=dtype, ref=ref)


def tuple_(*children: Tree) -> Tree:
    return Tree("tuple", children)


def list_(*children: Tree) -> Tree:
    return Tree("list", children)


def dict_(**children: Tree) -> Tree:
    keys = tuple(sorted(children))
    return Tree("dict", tuple(children[k] for k in keys), keys)


V = leaf(128)


def inp(name: str | None = "x_ref", *shape: int, dtype: str = "float32") -> Param:
    return Param("input", name, shape or (128,), dtype, "gmem")


def out(name: str | None = "o_ref", *shape: int, dtype: str = "float32", tree: Tree | None = None) -> Param:
    if tree is not None:
        return Param("output", name, tree=tree)
    return Param("output", name, shape or (128,), dtype, "gmem")


def scratch(name: str | None, *shape: int, dtype: str = "float32") -> Param:
    return Param("scratch", name, shape or (128,), dtype, "smem")


@dataclass(frozen=True)
class Body:
    """A :class:`Returned` whose function is found in the text: by name, or the lambda number ``at``."""

    name: str = "kernel"
    params: Sequence[Param] = (inp(), out())
    value: Tree = V
    written: tuple[str, ...] = ()
    entry: str = "pl.kernel"
    silent: bool = False
    at: int = 0
    varies: bool = False
    along: tuple[str, ...] = ()

    def facts(self, source: SourceFile, path: str | None = None) -> Returned:
        function = self.function(source, path)
        varies = self.varies, self.along
        return Returned(self.entry, function, tuple(self.params), self.value, self.written, self.silent, *varies)

    def function(self, source: SourceFile, path: str | None) -> Function:
        path = path or source.path
        if self.name == "<lambda>":
            node = [n for n in ast.walk(source.tree) if isinstance(n, ast.Lambda)][self.at].body
            line, column = source.position(source.bounds(node)[0])
            return Function(path, line, self.name, self.name, column)
        functions = (n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        found = next(n for n in functions if n.name == self.name)
        return Function(path, min([found.lineno, *(d.lineno for d in found.decorator_list)]), self.name, self.name)


def candidates(source: SourceFile, *bodies: Body, path: str | None = None) -> list[Candidate]:
    rule = catalogue.load().find("MGF401")
    assert rule is not None
    facts = Facts(returned=tuple(body.facts(source, path) for body in bodies))
    failure = Failure("ValueError", "The kernel function in mpmd_map kernel should return None.", "trace", facts=facts)
    failure = replace(failure, kernel="kernel")
    return list(rule.candidates(failure, source))


def file(text: str) -> SourceFile:
    return SourceFile(PATH, textwrap.dedent(text).lstrip("\n").encode())


GOLDEN_CASES: dict[str, list[Body]] = {
    "mesh_decorator": [Body(params=[inp("x_ref", 256), out("out_ref", 256)], value=leaf(256))],
    "tuple_two_outputs": [
        Body(
            "squares",
            [
                *(inp(n, 128, 64) for n in ("x_gmem", "y_gmem")),
                *(out(n, 128, 64) for n in ("sum_gmem", "product_gmem")),
            ],
            tuple_(leaf(128, 64), leaf(128, 64)),
        )
    ],
    "list_literal": [Body("powers", [inp("x"), out("first"), out("second"), out("third")], list_(V, V, V))],
    "dict_output": [
        Body(
            params=[inp("a_ref"), inp("b_ref"), out("out", tree=dict_(difference=V, total=V))],
            value=dict_(difference=V, total=V),
            entry="plgpu.kernel",
            silent=True,
        )
    ],
    "dict_by_name": [
        Body(
            params=[inp(), out("rounded_ref"), out("whole_ref", dtype="int32")],
            value=dict_(rounded=V, whole=leaf(128, dtype="int32")),
        )
    ],
    "early_return": [Body("activation", [inp("x_ref", 512), out("y_ref", 512)], leaf(512))],
    "redundant_return": [
        Body(
            params=[inp("x_ref", 4, 128), inp("w_ref", 4, 128), out("o_ref", 4, 128)],
            value=leaf(4, 128),
            written=("o_ref",),
        )
    ],
    "returns_ref": [
        Body(
            params=[inp("x_ref", 8, 128), out("o_ref", 8, 128)],
            value=leaf(8, 128, ref="o_ref"),
            written=("o_ref",),
        )
    ],
    "plgpu_kernel_drop": [
        Body("add", [inp("a_gmem"), inp("b_gmem"), out("o_gmem")], entry="plgpu.kernel", silent=True)
    ],
    "plgpu_kernel_scratch": [
        Body(
            params=[inp("x_gmem"), out("y_gmem"), scratch("x_smem"), Param("scratch", "barrier", dtype="barrier")],
            entry="plgpu.kernel",
            silent=True,
        )
    ],
    "partial_bound": [Body("affine", [inp("x_ref", 64, 128), out("y_ref", 64, 128)], leaf(64, 128))],
    "lambda_body": [Body("<lambda>", [inp("x", 256), out("o", 256)], leaf(256))],
    "lambda_nested": [Body("<lambda>", [inp("x", 256), out("o", 256)], leaf(256))],
    "missing_output": [
        Body(
            "reverse_blend",
            [inp("x_gmem"), inp("y_gmem"), out(None), scratch("staged")],
            entry="plgpu.kernel",
            silent=True,
        )
    ],
    "run_scoped_value": [Body()],
    "warp_map_return": [Body("per_warp", [], leaf(dtype="int32"), entry="plgpu.warp_map")],
    "core_map_warp": [Body("_per_warp", [], leaf(dtype="int32"), entry="pl.core_map")],
    "condition_value": [
        Body("_store", [inp(), out(), scratch("total")], entry="pl.when", along=("wg",)),
    ],
    "condition_return": [
        Body("_first", [inp(), out("o_ref", 2, 128)], written=("o_ref",), entry="pl.when", along=("wg",)),
        Body("_second", [inp(), out("o_ref", 2, 128)], written=("o_ref",), entry="pl.when", along=("wg",)),
    ],
    "one_element": [
        Body(params=[inp(), out("o_ref", 1)], value=leaf(), entry="plgpu.kernel", silent=True),
    ],
    "dtype_cast": [Body("halve", [inp(dtype="bfloat16"), out(dtype="bfloat16")])],
    "scalar_fill": [Body(params=[inp(), out("weight_ref")], value=leaf(dtype="float"))],
    "emit_pipeline_drop": [
        Body(
            "body",
            [inp("x_smem", 64, 64), out("o_smem", 64, 64)],
            leaf(64, 64),
            entry="plgpu.emit_pipeline",
            silent=True,
        )
    ],
    "warp_specialized_pipeline": [
        Body("double", [inp("x_smem"), out("o_smem")], entry="plgpu.emit_pipeline_warp_specialized")
    ],
    "helper_tuple": [Body(params=[inp(), out("pos_ref"), out("neg_ref")], value=tuple_(V, V))],
    "two_space_indent": [Body("_body", [inp("x_ref", 256), out("o_ref", 256)], leaf(256))],
    "tabs": [Body("softsign", [inp(), out("y_ref"), out("slope_ref")], written=("y_ref",))],
    "two_levels": [
        Body(
            "doubled_and_bias",
            [inp("x_gmem", 64, 256), inp("bias_gmem"), out("o_gmem", 64, 256), out("bias_out_gmem")],
            written=("o_gmem",),
            entry="plgpu.kernel",
            silent=True,
        ),
        Body(
            "step",
            [inp("x_smem", 64, 64), out("o_smem", 64, 64)],
            leaf(64, 64),
            entry="plgpu.emit_pipeline",
            silent=True,
        ),
    ],
    "vararg_refs": [Body("add_all", [inp(None), inp(None), inp(None), out(None)])],
}


@pytest.mark.parametrize("case", GOLDEN_CASES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_golden(case: str, newline: str) -> None:
    before, after = (
        (GOLDEN / case / f"{n}.py").read_bytes().replace(b"\n", newline.encode()) for n in ("before", "after")
    )
    source = SourceFile(PATH, before)
    best, *_ = candidates(source, *GOLDEN_CASES[case])
    fixed = source.edited(best.edits)
    assert fixed.data == after
    assert not source.comments - fixed.comments
    assert best.applicability is Applicability.SAFE


def test_every_golden_case_is_tested() -> None:
    assert {p.name for p in GOLDEN.iterdir()} == {*GOLDEN_CASES}


#: name: (before, what was returned, after)
STORED: dict[str, tuple[str, list[Body], str]] = {
    "one-line body": (
        "def kernel(x_ref, o_ref): return x_ref[...] * 2  # twice\n",
        [Body()],
        "def kernel(x_ref, o_ref): o_ref[...] = x_ref[...] * 2  # twice\n",
    ),
    "another end of the body stores by itself": (
        """
        def slowly(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        def kernel(x_ref, o_ref):
            if slow:
                return slowly(x_ref, o_ref)
            return x_ref[...] * 2
        """,
        [Body()],
        """
        def slowly(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        def kernel(x_ref, o_ref):
            if slow:
                return slowly(x_ref, o_ref)
            o_ref[...] = x_ref[...] * 2
        """,
    ),
    "axes of one element": (
        """
        def kernel(x_ref, o_ref):
            return x_ref[0]

        def total(x_ref, o_ref):
            return x_ref[...].sum()

        def column(x_ref, o_ref):
            return x_ref[...]
        """,
        [
            Body(params=[inp(), out("o_ref", 1, 128)]),
            Body("total", [inp(), out("o_ref", 1, 1, dtype="bfloat16")], leaf()),
            Body("column", [inp(), out("o_ref", 128, 1, 4, 1)], leaf(128, 4)),
        ],
        """
        def kernel(x_ref, o_ref):
            o_ref[0] = x_ref[0]

        def total(x_ref, o_ref):
            o_ref[0, 0] = x_ref[...].sum().astype(o_ref.dtype)

        def column(x_ref, o_ref):
            o_ref[:, 0, :, 0] = x_ref[...]
        """,
    ),
    "one-line branches": (
        """
        def kernel(x_ref, o_ref):
            if flag: return x_ref[...]
            y = x_ref[...]; return -y
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            if flag: o_ref[...] = x_ref[...]; return
            y = x_ref[...]; o_ref[...] = -y
        """,
    ),
    "no space after return, no newline at the end": (
        "def kernel(x_ref, o_ref):\n  return(x_ref[...])",
        [Body()],
        "def kernel(x_ref, o_ref):\n  o_ref[...] = (x_ref[...])",
    ),
    "control flow": (
        """
        def kernel(x_ref, o_ref):
            for scale in (1, 2):
                if scale == factor:
                    return x_ref[...] * scale
            while flag:
                return x_ref[...]
            with jax.named_scope("a"):
                if other:
                    return x_ref[...] + 1  # one
                    unreachable()
                try:
                    return x_ref[...] + 2
                except ValueError:
                    return x_ref[...] + 3
                finally:
                    done()
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            for scale in (1, 2):
                if scale == factor:
                    o_ref[...] = x_ref[...] * scale
                    return
            while flag:
                o_ref[...] = x_ref[...]
                return
            with jax.named_scope("a"):
                if other:
                    o_ref[...] = x_ref[...] + 1  # one
                    return
                    unreachable()
                try:
                    o_ref[...] = x_ref[...] + 2
                except ValueError:
                    o_ref[...] = x_ref[...] + 3
                finally:
                    done()
        """,
    ),
    "match, try with else": (
        """
        def kernel(x_ref, o_ref):
            try:
                return x_ref[...]
            except ValueError:
                pass
            else:
                match mode:
                    case "a":
                        return x_ref[...] + 1
                    case _:
                        return x_ref[...] + 2
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            try:
                o_ref[...] = x_ref[...]
                return
            except ValueError:
                pass
            else:
                match mode:
                    case "a":
                        o_ref[...] = x_ref[...] + 1
                    case _:
                        o_ref[...] = x_ref[...] + 2
        """,
    ),
    "returns of None and of nested functions stay": (
        """
        def kernel(x_ref, o_ref):
            if skip:
                return
            if never:
                return None

            @pl.when(flag)
            def _():
                return print()

            def step(i, carry):
                return carry + x_ref[i]

            return lax.fori_loop(0, 4, step, lambda_free(lambda x: x))
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            if skip:
                return
            if never:
                return None

            @pl.when(flag)
            def _():
                return print()

            def step(i, carry):
                return carry + x_ref[i]

            o_ref[...] = lax.fori_loop(0, 4, step, lambda_free(lambda x: x))
        """,
    ),
    "comments inside and around": (
        """
        def kernel(x_ref, o_ref):
            # before
            return (  # open
                x_ref[...]  # left
                # own line
                + 1
            )  # close
            # after
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            # before
            o_ref[...] = (  # open
                x_ref[...]  # left
                # own line
                + 1
            )  # close
            # after
        """,
    ),
    "conditional expression and walrus": (
        """
        def kernel(x_ref, o_ref):
            return (y := x_ref[...]) if flag else -x_ref[...]
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            o_ref[...] = (y := x_ref[...]) if flag else -x_ref[...]
        """,
    ),
    "a comment in a tuple keeps it whole": (
        """
        def kernel(x_ref, a_ref, b_ref):
            return (
                x_ref[...],  # first
                x_ref[...] + 1,
            )
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V))],
        """
        def kernel(x_ref, a_ref, b_ref):
            a_ref[...], b_ref[...] = (
                x_ref[...],  # first
                x_ref[...] + 1,
            )
        """,
    ),
    "an element that reads an earlier output": (
        """
        def kernel(x_ref, a_ref, b_ref):
            return x_ref[...], a_ref[...]
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V))],
        """
        def kernel(x_ref, a_ref, b_ref):
            a_ref[...], b_ref[...] = x_ref[...], a_ref[...]
        """,
    ),
    "a later element with effects": (
        """
        def kernel(x_ref, a_ref, b_ref):
            return x_ref[...], bump(x_ref)
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V))],
        """
        def kernel(x_ref, a_ref, b_ref):
            a_ref[...], b_ref[...] = x_ref[...], bump(x_ref)
        """,
    ),
    "an earlier element with effects": (
        """
        def kernel(x_ref, a_ref, b_ref):
            return bump(x_ref), x_ref[...].sum()
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V))],
        """
        def kernel(x_ref, a_ref, b_ref):
            a_ref[...] = bump(x_ref)
            b_ref[...] = x_ref[...].sum()
        """,
    ),
    "a pair by name, starred": (
        """
        def kernel(x_ref, a_ref, b_ref):
            pair = split(x_ref[...])
            if flag:
                return *pair,
            return pair
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V))],
        """
        def kernel(x_ref, a_ref, b_ref):
            pair = split(x_ref[...])
            if flag:
                a_ref[...], b_ref[...] = (*pair,)
                return
            a_ref[...], b_ref[...] = pair
        """,
    ),
    "casts in a tuple": (
        """
        def kernel(x_ref, a_ref, b_ref):
            x = x_ref[...]
            return -x, x
        """,
        [Body(params=[inp(), out("a_ref", dtype="bfloat16"), out("b_ref", dtype="float16")], value=tuple_(V, V))],
        """
        def kernel(x_ref, a_ref, b_ref):
            x = x_ref[...]
            a_ref[...] = (-x).astype(a_ref.dtype)
            b_ref[...] = x.astype(b_ref.dtype)
        """,
    ),
    "casts of what a helper returns": (
        """
        def kernel(values, a_ref, b_ref):
            return split(values[...])
        """,
        [Body(params=[inp("values"), out("a_ref", dtype="bfloat16"), out("b_ref")], value=tuple_(V, V))],
        """
        def kernel(values, a_ref, b_ref):
            values_2 = split(values[...])
            a_ref[...] = values_2[0].astype(a_ref.dtype)
            b_ref[...] = values_2[1]
        """,
    ),
    "a tuple of one": (
        """
        def kernel(x_ref, o_ref):
            if flag:
                return (x_ref[...],)
            return helper(x_ref)
        """,
        [Body(value=tuple_(V))],
        """
        def kernel(x_ref, o_ref):
            if flag:
                o_ref[...] = x_ref[...]
                return
            o_ref[...], = helper(x_ref)
        """,
    ),
    "nested outputs": (
        """
        def kernel(x_ref, pair, last):
            if flag:
                return make(x_ref)
            return (x_ref[...], 2 * x_ref[...]), x_ref[...]
        """,
        [
            Body(
                params=[inp(), out("pair", tree=tuple_(V, V)), out("last")],
                value=tuple_(tuple_(V, V), V),
            )
        ],
        """
        def kernel(x_ref, pair, last):
            if flag:
                (pair[0][...], pair[1][...]), last[...] = make(x_ref)
                return
            pair[0][...] = x_ref[...]
            pair[1][...] = 2 * x_ref[...]
            last[...] = x_ref[...]
        """,
    ),
    "a dict that is not written out": (
        """
        def kernel(x_ref, out):
            return stats(x_ref[...])
        """,
        [
            Body(
                params=[inp(), out("out", tree=dict_(lo=V, hi=leaf(128, dtype="float16")))],
                value=dict_(lo=V, hi=V),
            )
        ],
        """
        def kernel(x_ref, out):
            values = stats(x_ref[...])
            out["hi"][...] = values["hi"].astype(out["hi"].dtype)
            out["lo"][...] = values["lo"]
        """,
    ),
    "a dict whose comment stays": (
        """
        def kernel(x_ref, out):
            return {
                "lo": x_ref[...],  # low
                "hi": x_ref[...],
            }
        """,
        [Body(params=[inp(), out("out", tree=dict_(lo=V, hi=V))], value=dict_(lo=V, hi=V))],
        """
        def kernel(x_ref, out):
            values = {
                "lo": x_ref[...],  # low
                "hi": x_ref[...],
            }
            out["hi"][...] = values["hi"]
            out["lo"][...] = values["lo"]
        """,
    ),
    "a dict in a tuple": (
        """
        def kernel(x_ref, out, o_ref):
            return {"a": x_ref[...]}, x_ref[...]
        """,
        [
            Body(
                params=[inp(), out("out", tree=dict_(a=V)), out()],
                value=tuple_(dict_(a=V), V),
            )
        ],
        """
        def kernel(x_ref, out, o_ref):
            out["a"][...] = x_ref[...]
            o_ref[...] = x_ref[...]
        """,
    ),
    "keys that name the outputs": (
        """
        def kernel(x_ref, out_sum, total_out, n_gmem):
            return dict(sum=x_ref[...], total=x_ref[...], n_gmem=x_ref[...])
        """,
        [
            Body(
                params=[inp(), out("out_sum"), out("total_out"), out("n_gmem")],
                value=dict_(sum=V, total=V, n_gmem=V),
            )
        ],
        """
        def kernel(x_ref, out_sum, total_out, n_gmem):
            values = dict(sum=x_ref[...], total=x_ref[...], n_gmem=x_ref[...])
            n_gmem[...] = values["n_gmem"]
            out_sum[...] = values["sum"]
            total_out[...] = values["total"]
        """,
    ),
    "a Python number": (
        """
        import jax

        def kernel(x_ref, o_ref):
            return 1
        """,
        [Body(value=leaf(dtype="int32"), entry="plgpu.kernel")],
        """
        import jax

        def kernel(x_ref, o_ref):
            o_ref[...] = jax.numpy.full(o_ref.shape, 1, o_ref.dtype)
        """,
    ),
    "a number for a scalar output": (
        """
        from jax import numpy as np

        def kernel(x_ref, o_ref):
            return 1
        """,
        [Body(params=[inp(), Param("output", "o_ref", (), "float32")], value=leaf(dtype="int32"))],
        """
        from jax import numpy as np

        def kernel(x_ref, o_ref):
            o_ref[...] = np.full(o_ref.shape, 1, o_ref.dtype)
        """,
    ),
    "one of two outputs is stored by the body": (
        """
        def kernel(x_ref, a_ref, b_ref, c_ref):
            b_ref[...] = x_ref[...]
            return -x_ref[...], x_ref[...]
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref"), out("c_ref")], value=tuple_(V, V), written=("b_ref",))],
        """
        def kernel(x_ref, a_ref, b_ref, c_ref):
            b_ref[...] = x_ref[...]
            a_ref[...] = -x_ref[...]
            c_ref[...] = x_ref[...]
        """,
    ),
    "what is stored already is not stored again": (
        """
        def kernel(x_ref, a_ref, b_ref):
            y = x_ref[...]
            a_ref[...] = y
            z = -y
            return y, z
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V), written=("a_ref",))],
        """
        def kernel(x_ref, a_ref, b_ref):
            y = x_ref[...]
            a_ref[...] = y
            z = -y
            b_ref[...] = z
        """,
    ),
    "a Ref and a value": (
        """
        def kernel(x_ref, a_ref, b_ref):
            fill(a_ref)
            return a_ref, x_ref[...]
        """,
        [
            Body(
                params=[inp(), out("a_ref"), out("b_ref")],
                value=tuple_(leaf(128, ref="a_ref"), V),
                written=("a_ref",),
            )
        ],
        """
        def kernel(x_ref, a_ref, b_ref):
            fill(a_ref)
            b_ref[...] = x_ref[...]
        """,
    ),
    "refs unpacked from a vararg, indices first": (
        """
        def step(*refs):
            _, x_ref, o_ref = refs
            return x_ref[...]
        """,
        [Body("step", [inp(None), out(None)], entry="plgpu.emit_pipeline", silent=True)],
        """
        def step(*refs):
            _, x_ref, o_ref = refs
            o_ref[...] = x_ref[...]
        """,
    ),
    "scratch in a vararg": (
        """
        def kernel(x_ref, o_ref, *scratch):
            return x_ref[...]
        """,
        [Body(params=[inp(), out(), scratch(None)])],
        """
        def kernel(x_ref, o_ref, *scratch):
            o_ref[...] = x_ref[...]
        """,
    ),
    "the same body given to two kernels, and called for its effect": (
        """
        from jax.experimental import pallas as pl
        import functools
        import jax

        def body(x_ref, o_ref):
            return x_ref[...]

        bound = functools.partial(body)
        a = pl.kernel(body, out_type=OUT, mesh=MESH)
        b = pl.kernel(bound, out_type=OUT, mesh=MESH)
        c = pl.kernel(functools.partial(body), out_type=OUT, mesh=MESH)(x)
        d = make(body)
        e = self.kernel(body if flag else other, out_type=OUT)

        def make(f, *, name=body.__name__):
            launch = functools.partial(pl.kernel, out_type=OUT, mesh=MESH)
            return launch(f)(x)

        @jax.jit
        def again(x, f):
            g: Callable = f
            return make(f=g)

        again(x, body)

        def outer(x_ref, o_ref):
            body(x_ref, o_ref)
        """,
        [Body("body")],
        """
        from jax.experimental import pallas as pl
        import functools
        import jax

        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...]

        bound = functools.partial(body)
        a = pl.kernel(body, out_type=OUT, mesh=MESH)
        b = pl.kernel(bound, out_type=OUT, mesh=MESH)
        c = pl.kernel(functools.partial(body), out_type=OUT, mesh=MESH)(x)
        d = make(body)
        e = self.kernel(body if flag else other, out_type=OUT)

        def make(f, *, name=body.__name__):
            launch = functools.partial(pl.kernel, out_type=OUT, mesh=MESH)
            return launch(f)(x)

        @jax.jit
        def again(x, f):
            g: Callable = f
            return make(f=g)

        again(x, body)

        def outer(x_ref, o_ref):
            body(x_ref, o_ref)
        """,
    ),
    "a number on a path that did not run": (
        """
        import jax.numpy as jnp

        def kernel(x_ref, o_ref) -> jax.Array:
            if flag:
                return 0.0
            if other:
                return -1
            return x_ref[...]
        """,
        [Body()],
        """
        import jax.numpy as jnp

        def kernel(x_ref, o_ref) -> None:
            if flag:
                o_ref[...] = jnp.full(o_ref.shape, 0.0, o_ref.dtype)
                return
            if other:
                o_ref[...] = jnp.full(o_ref.shape, -1, o_ref.dtype)
                return
            o_ref[...] = x_ref[...]
        """,
    ),
    "an output whose shape and values are only read": (
        """
        def kernel(x_ref, o_ref):
            y = x_ref[...].reshape(o_ref.shape) + o_ref[...] + o_ref[0] * 2
            return y.astype(o_ref.dtype)
        """,
        [Body()],
        """
        def kernel(x_ref, o_ref):
            y = x_ref[...].reshape(o_ref.shape) + o_ref[...] + o_ref[0] * 2
            o_ref[...] = y.astype(o_ref.dtype)
        """,
    ),
    "names in the order of the outputs": (
        """
        @plgpu.kernel(out_type=(OUT, OUT))
        def kernel(x_ref, lo_ref, hi_ref) -> tuple[jax.Array, jax.Array]:
            lo, hi = split(x_ref[...])
            return lo, hi
        """,
        [Body(params=[inp(), out("lo_ref"), out("hi_ref")], value=tuple_(V, V))],
        """
        @plgpu.kernel(out_type=(OUT, OUT))
        def kernel(x_ref, lo_ref, hi_ref) -> None:
            lo, hi = split(x_ref[...])
            lo_ref[...] = lo
            hi_ref[...] = hi
        """,
    ),
    "a decorated body: its name is the kernel's": (
        """
        @functools.partial(self.pallas_call, out_shape=OUT)
        def kernel(x_ref, o_ref):
            return x_ref[...]

        y = kernel(x) + 1
        """,
        [Body()],
        """
        @functools.partial(self.pallas_call, out_shape=OUT)
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...]

        y = kernel(x) + 1
        """,
    ),
}

DELETED: dict[str, tuple[str, list[Body], str]] = {
    "a body that only returns": (
        """
        import jax.numpy as jnp

        def kernel(x_ref, o_ref) -> jax.Array: return o_ref
        """,
        [Body(value=leaf(128, ref="o_ref"), written=("o_ref",))],
        """
        import jax.numpy as jnp

        def kernel(x_ref, o_ref) -> None: return
        """,
    ),
    "part of the output that was stored": (
        """
        from jax.experimental import pallas as pl

        def kernel(x_ref, o_ref):
            i = lax.axis_index("i")
            o_ref[pl.ds(64 * i, 64)] = x_ref[...]
            return o_ref[pl.ds(64*i, 64)]
        """,
        [Body(value=leaf(64), varies=True)],
        """
        from jax.experimental import pallas as pl

        def kernel(x_ref, o_ref):
            i = lax.axis_index("i")
            o_ref[pl.ds(64 * i, 64)] = x_ref[...]
        """,
    ),
    "who runs a warp-level body, and what it stored": (
        """
        from jax import lax

        @plgpu.warp_map
        def per_warp(w):
            o_ref[w] = 2 * w
            return w

        @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
        def other():
            warp = lax.axis_index("warp")
            o_ref[warp], p_ref[warp] = warp, 1
            q_ref[warp] = 3
            return warp, q_ref[warp]
        """,
        [
            Body("per_warp", [], leaf(dtype="int32"), entry="plgpu.warp_map"),
            Body("other", [], tuple_(V, V), entry="pl.core_map"),
        ],
        """
        from jax import lax

        @plgpu.warp_map
        def per_warp(w):
            o_ref[w] = 2 * w

        @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
        def other():
            warp = lax.axis_index("warp")
            o_ref[warp], p_ref[warp] = warp, 1
            q_ref[warp] = 3
        """,
    ),
    "what a condition stored": (
        """
        def kernel(x_ref, o_ref):
            @pl.when(i == 0)
            def _store():
                o_ref[...] = x_ref[...] * 2
                return x_ref[...] * 2
        """,
        [Body("_store", [], entry="pl.when")],
        """
        def kernel(x_ref, o_ref):
            @pl.when(i == 0)
            def _store():
                o_ref[...] = x_ref[...] * 2
        """,
    ),
    "comments of what goes stay": (
        """
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...]

            # The value.
            return (  # open
                x_ref[...]
            )  # close
        """,
        [Body(written=("o_ref",))],
        """
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...]

            # The value.
            # open
            # close
        """,
    ),
    "what the output holds": (
        """
        def kernel(x_ref, o_ref):
            if a:
                o_ref[...] = (x_ref[...] * 2).astype(o_ref.dtype)
                return x_ref[...] * 2
            if b:
                z = x_ref[...]; o_ref[...] = z
                other = 1
                return z
            accumulate(o_ref)
            return o_ref[:]
        """,
        [Body(written=("o_ref",))],
        """
        def kernel(x_ref, o_ref):
            if a:
                o_ref[...] = (x_ref[...] * 2).astype(o_ref.dtype)
                return
            if b:
                z = x_ref[...]; o_ref[...] = z
                other = 1
                return
            accumulate(o_ref)
        """,
    ),
    "Refs, alone or together": (
        """
        def kernel(x_ref, a_ref, b_ref):
            if flag:
                fill(a_ref); return a_ref, b_ref
            refs = fill(a_ref), fill(b_ref)
            return [a_ref, b_ref]
        """,
        [
            Body(
                params=[inp(), out("a_ref"), out("b_ref")],
                value=tuple_(leaf(128, ref="a_ref"), leaf(128, ref="b_ref")),
            )
        ],
        """
        def kernel(x_ref, a_ref, b_ref):
            if flag:
                fill(a_ref); return
            refs = fill(a_ref), fill(b_ref)
        """,
    ),
    "one value for two written outputs": (
        """
        def kernel(x_ref, a_ref, b_ref):
            y = x_ref[...]
            b_ref[...] = y
            a_ref[...] = -y
            return y
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], written=("a_ref", "b_ref"))],
        """
        def kernel(x_ref, a_ref, b_ref):
            y = x_ref[...]
            b_ref[...] = y
            a_ref[...] = -y
        """,
    ),
    "the Ref of one of two outputs": (
        """
        def kernel(x_ref, a_ref, b_ref):
            fill(a_ref, b_ref)
            return b_ref
        """,
        [Body(params=[inp(), out("a_ref"), out("b_ref")], value=leaf(128, ref="b_ref"), silent=True)],
        """
        def kernel(x_ref, a_ref, b_ref):
            fill(a_ref, b_ref)
        """,
    ),
    "a pytree of Refs": (
        """
        def kernel(x_ref, pair):
            fill(pair)
            return pair
        """,
        [Body(params=[inp(), out("pair", tree=tuple_(V, V))], value=tuple_(V, V), silent=True)],
        """
        def kernel(x_ref, pair):
            fill(pair)
        """,
    ),
}

ADDED: dict[str, tuple[str, list[Body], str]] = {
    "before scratch": (
        "def kernel(x_gmem, smem, *, barrier):\n    return x_gmem[...]\n",
        [Body(params=[inp("x_gmem"), out(None), scratch("smem"), scratch("barrier")])],
        "def kernel(x_gmem, o_gmem, smem, *, barrier):\n    o_gmem[...] = x_gmem[...]\n",
    ),
    "without inputs": (
        "def kernel(factor, smem):\n    return iota(factor)\n",
        [Body(params=[out(None), scratch("smem")])],
        "def kernel(factor, o_ref, smem):\n    o_ref[...] = iota(factor)\n",
    ),
    "without any parameter": (
        "def kernel():\n    return iota()\n",
        [Body(params=[out(None)])],
        "def kernel(o_ref):\n    o_ref[...] = iota()\n",
    ),
    "plain names, a default after": (
        "def kernel(x: Ref, scale: float = 2.0):\n    return x[...] * scale\n",
        [Body(params=[inp("x"), out(None)])],
        "def kernel(x: Ref, o, scale: float = 2.0):\n    o[...] = x[...] * scale\n",
    ),
    "several, a name taken, positional only, over lines": (
        """
        def kernel(
            o0_ref,
            x_ref,  # data
            /,
        ):
            return x_ref[...], o0_ref[...]
        """,
        [Body(params=[inp("o0_ref"), inp("x_ref"), out(None), out(None)], value=tuple_(V, V))],
        """
        def kernel(
            o0_ref,
            x_ref, out0_ref, out1_ref,  # data
            /,
        ):
            out0_ref[...] = x_ref[...]
            out1_ref[...] = o0_ref[...]
        """,
    ),
    "the second of two": (
        "def kernel(x_ref, a_ref):\n    return x_ref[...], -x_ref[...]\n",
        [Body(params=[inp(), out("a_ref"), out(None)], value=tuple_(V, V))],
        "def kernel(x_ref, a_ref, o_ref):\n    a_ref[...] = x_ref[...]\n    o_ref[...] = -x_ref[...]\n",
    ),
    "a pipeline that passes indices": (
        "def step(i):\n    return iota(i)\n",
        [Body("step", [out(None)], entry="plgpu.emit_pipeline")],
        "def step(i, o_ref):\n    o_ref[...] = iota(i)\n",
    ),
    "a lambda": (
        "kernel = pl.kernel(lambda x_ref: x_ref[...], out_type=OUT, mesh=MESH)\n",
        [Body("<lambda>", [inp(), out(None)])],
        """
        def kernel_body(x_ref, o_ref):
            o_ref[...] = x_ref[...]


        kernel = pl.kernel(kernel_body, out_type=OUT, mesh=MESH)
        """,
    ),
}

LAMBDAS: dict[str, tuple[str, list[Body], str]] = {
    "over lines without parentheses of its own": (
        """
        import jax
        kernel_body = None
        kernel = pl.kernel(
            lambda x_ref, o_ref: x_ref[...]  # twice
            * 2,
            out_type=OUT,
        )
        """,
        [Body("<lambda>")],
        """
        import jax
        kernel_body = None


        def kernel_body_2(x_ref, o_ref):
            o_ref[...] = (x_ref[...]  # twice
                * 2)


        kernel = pl.kernel(
            kernel_body_2,
            out_type=OUT,
        )
        """,
    ),
    "that has a name": (
        """
        double = lambda x_ref, o_ref: x_ref[...] * 2  # noqa: E731
        kernel = pl.kernel(double, out_type=OUT)
        """,
        [Body("<lambda>")],
        """
        # noqa: E731
        def double(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2
        kernel = pl.kernel(double, out_type=OUT)
        """,
    ),
    "in a decorator": (
        """
        class Layer:
            # decorated
            @wrap(pl.kernel(lambda x_ref, o_ref: (x_ref[...]), out_type=OUT))
            def call(self):
                pass
        """,
        [Body("<lambda>")],
        """
        class Layer:
            # decorated
            def kernel_body(x_ref, o_ref):
                o_ref[...] = (x_ref[...])

            @wrap(pl.kernel(kernel_body, out_type=OUT))
            def call(self):
                pass
        """,
    ),
    "in a value that is returned": (
        """
        def kernel(x_ref, o_ref):
            return fill(plgpu.emit_pipeline(lambda i, x, o: x[...], grid=(1,)))
        """,
        [Body(), Body("<lambda>", [inp("x"), out("o")], entry="plgpu.emit_pipeline")],
        """
        def kernel(x_ref, o_ref):
            def kernel_body(i, x, o):
                o[...] = x[...]

            o_ref[...] = fill(plgpu.emit_pipeline(kernel_body, grid=(1,)))
        """,
    ),
    "in an elif": (
        """
        x = 1
        if a:
            pass
        elif b:
            pass
        elif pl.kernel(lambda x, o: x[...])(y):
            pass
        """,
        [Body("<lambda>", [inp("x"), out("o")])],
        """
        x = 1


        def kernel_body(x, o):
            o[...] = x[...]


        if a:
            pass
        elif b:
            pass
        elif pl.kernel(kernel_body)(y):
            pass
        """,
    ),
    "two in one statement": (
        "a, b = pl.kernel(lambda x, o: x[...]), pl.kernel(lambda x, o: -x[...])\n",
        [Body("<lambda>", [inp("x"), out("o")]), Body("<lambda>", [inp("x"), out("o")], at=1)],
        """
        def kernel_body(x, o):
            o[...] = x[...]


        def kernel_body_2(x, o):
            o[...] = -x[...]


        a, b = pl.kernel(kernel_body), pl.kernel(kernel_body_2)
        """,
    ),
    "several outputs": (
        "    \nif True:\n\tk = pl.kernel(lambda x, a, b: (x[...], -x[...]), out_type=(OUT, OUT))\n",
        [Body("<lambda>", [inp("x"), out("a"), out("b")], tuple_(V, V))],
        "    \nif True:\n\tdef k_body(x, a, b):\n\t\ta[...] = x[...]\n\t\tb[...] = -x[...]\n\n"
        "\tk = pl.kernel(k_body, out_type=(OUT, OUT))\n",
    ),
}

TABLES = {"stored": STORED, "deleted": DELETED, "added": ADDED, "lambda": LAMBDAS}


@pytest.mark.parametrize(
    ("before", "bodies", "after"),
    [pytest.param(*case, id=f"{table}: {name}") for table, cases in TABLES.items() for name, case in cases.items()],
)
def test_best_candidate(before: str, bodies: list[Body], after: str) -> None:
    source = file(before)
    best, *others = candidates(source, *bodies)
    fixed = source.edited(best.edits)
    assert fixed.text == file(after).text
    assert not source.comments - fixed.comments
    assert best.applicability is Applicability.SAFE
    assert not others
    assert best.name == "store" or not best.needs_oracle


#: name: (before, what was returned, after the store, after the deletion); ``silent`` makes no difference.
WRITTEN: dict[str, tuple[str, Body, str, str]] = {
    "something else": (
        "def kernel(x_ref, o_ref):\n    o_ref[0] = x_ref[0]\n    return x_ref[...] * 3\n",
        Body(written=("o_ref",)),
        "def kernel(x_ref, o_ref):\n    o_ref[0] = x_ref[0]\n    o_ref[...] = x_ref[...] * 3\n",
        "def kernel(x_ref, o_ref):\n    o_ref[0] = x_ref[0]\n",
    ),
    "more of the output": (
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    return o_ref[...] * 2\n",
        Body(written=("o_ref",), entry="plgpu.kernel", silent=True),
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    o_ref[...] = o_ref[...] * 2\n",
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n",
    ),
    "an accumulator": (
        "def kernel(x_ref, o_ref):\n    o_ref[...] = zeros\n    return loop(x_ref)\n",
        Body(written=("o_ref",), entry="plgpu.kernel", silent=True),
        "def kernel(x_ref, o_ref):\n    o_ref[...] = zeros\n    o_ref[...] = loop(x_ref)\n",
        "def kernel(x_ref, o_ref):\n    o_ref[...] = zeros\n    loop(x_ref)\n",
    ),
    "the name is bound again": (
        "def kernel(x_ref, o_ref):\n    y = x_ref[...]\n    o_ref[...] = y\n    y = -y\n    return y\n",
        Body(written=("o_ref",)),
        "def kernel(x_ref, o_ref):\n    y = x_ref[...]\n    o_ref[...] = y\n    y = -y\n    o_ref[...] = y\n",
        "def kernel(x_ref, o_ref):\n    y = x_ref[...]\n    o_ref[...] = y\n    y = -y\n",
    ),
    "something happens between": (
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    edit(x_ref)\n    return x_ref[...]\n",
        Body(written=("o_ref",)),
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    edit(x_ref)\n    o_ref[...] = x_ref[...]\n",
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    edit(x_ref)\n",
    ),
    "what is read is written": (
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    x_ref[0] = 1.0\n    return x_ref[...]\n",
        Body(written=("o_ref",)),
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    x_ref[0] = 1.0\n    o_ref[...] = x_ref[...]\n",
        "def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    x_ref[0] = 1.0\n",
    ),
    "a call that may write": (
        "def kernel(x_ref, o_ref):\n    return fill(x_ref, o_ref)\n",
        Body(),
        "def kernel(x_ref, o_ref):\n    o_ref[...] = fill(x_ref, o_ref)\n",
        "def kernel(x_ref, o_ref):\n    fill(x_ref, o_ref)\n",
    ),
    "a pipeline's body": (
        "def step(i, x, o):\n    o[...] += x[...]\n    return x[...]\n",
        Body("step", [inp("x"), out("o")], entry="plgpu.emit_pipeline", silent=True),
        "def step(i, x, o):\n    o[...] += x[...]\n    o[...] = x[...]\n",
        "def step(i, x, o):\n    o[...] += x[...]\n",
    ),
    "a vararg": (
        "def kernel(*refs):\n    x, o = refs\n    refs[1][0] = 0.0\n    return x[...]\n",
        Body(params=[inp(None), out(None)]),
        "def kernel(*refs):\n    x, o = refs\n    refs[1][0] = 0.0\n    o[...] = x[...]\n",
        "def kernel(*refs):\n    x, o = refs\n    refs[1][0] = 0.0\n",
    ),
}


@pytest.mark.parametrize(
    ("before", "body", "store", "delete"), [pytest.param(*case, id=name) for name, case in WRITTEN.items()]
)
def test_written_and_returned(before: str, body: Body, store: str, delete: str) -> None:
    source = file(before)
    found = candidates(source, body)
    assert [source.edited(c.edits).text for c in found] == [delete, store]
    assert [(c.name, c.applicability, c.needs_oracle) for c in found] == [
        ("delete", Applicability.SAFE, True),
        ("store", Applicability.UNSAFE, True),
    ]
    assert found[0].title == "Delete the returned value, and keep what the body stores"


def test_numbers_tell_only_about_the_return_that_ran() -> None:
    source = file(
        "def kernel(x_ref, o_ref):\n    if flag:\n        y = x_ref[...]\n        o_ref[...] = y\n        return y\n"
        "    return -x_ref[...]\n"
    )
    delete, store = candidates(source, Body(written=("o_ref",)))
    assert (delete.name, delete.applicability) == ("delete", Applicability.UNSAFE)
    assert (store.name, store.applicability) == ("store", Applicability.UNSAFE)


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        ("x_ref[0:4]", leaf(4)),
        ("x_ref[...], x_ref[...]", tuple_(V, V)),
        ("x_ref", leaf(128, ref="x_ref")),
        ("True", leaf(dtype="bool")),
        ("0", leaf(dtype="int")),
        ("x_ref[...] if flag else None", V),
    ],
)
def test_what_does_not_fit_can_only_be_deleted(returned: str, value: Tree) -> None:
    source = file(f"def kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    return {returned}\n")
    [only] = candidates(source, Body(value=value, written=("o_ref",)))
    assert (only.name, only.applicability) == ("delete", Applicability.UNSAFE)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        pytest.param("def kernel(x_ref, o_ref):\n    return x_ref[...]\n", Body(varies=True), id="varies"),
        pytest.param(
            "def kernel(x_ref, o_ref):\n    return x_ref[...]\n", Body(varies=True, entry="pl.pallas_call"), id="grid"
        ),
        pytest.param(
            "def kernel(x_ref, a_ref, b_ref):\n    if flag:\n        return b, a\n    return f(x_ref)\n",
            Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V)),
            id="crossed names",
        ),
        pytest.param(
            "def kernel(x_ref, out_sum, n_gmem):\n    return [n, x]\n",
            Body(params=[inp(), out("out_sum"), out("n_gmem")], value=list_(V, V)),
            id="one crossed name",
        ),
        *(
            pytest.param(
                "def kernel(x_ref, o_ref):\n    return x_ref[...]\n",
                Body(params=[inp(), out(dtype=to)], value=leaf(128, dtype=of)),
                id=f"{of} to {to}",
            )
            for of, to in [
                ("float32", "int32"),
                ("bfloat16", "uint8"),
                ("int32", "int8"),
                ("int32", "uint32"),
                ("uint32", "int32"),
                ("float32", "bool"),
                ("int8", "bool"),
                ("complex64", "float32"),
                ("complex64", "int32"),
                ("key<fry>", "float32"),
            ]
        ),
        pytest.param(
            "import jax\n\ndef kernel(x_ref, o_ref):\n    return 0.5\n",
            Body(params=[inp(), out(dtype="int32")], value=leaf(dtype="float")),
            id="a number that is cut",
        ),
    ],
)
def test_a_store_that_may_be_wrong_is_unsafe(text: str, body: Body) -> None:
    [only] = candidates(file(text), body)
    assert (only.name, only.applicability) == ("store", Applicability.UNSAFE)


@pytest.mark.parametrize(
    ("of", "to"),
    [
        *(("int8", "int32"), ("uint8", "int16"), ("int32", "bfloat16"), ("float32", "float16")),
        *(("float8_e4m3fn", "float32"), ("bool", "float32"), ("bool", "int8"), ("float32", "complex64")),
    ],
)
def test_a_cast_that_keeps_the_value_is_safe(of: str, to: str) -> None:
    source = file("def kernel(x_ref, o_ref):\n    return x_ref[...]\n")
    [only] = candidates(source, Body(params=[inp(), out(dtype=to)], value=leaf(128, dtype=of)))
    assert (only.applicability, only.needs_oracle) == (Applicability.SAFE, False)


@pytest.mark.parametrize("end", ["return x_ref[...] * 2", "return", "yield", "return (yield)"])
def test_only_a_helper_that_gives_nothing_back_ends_a_body_by_itself(end: str) -> None:
    helper = f"def slowly(x_ref, o_ref):\n    o_ref[...] = x_ref[...]\n    {end}\n\n\n"
    kernel = "def kernel(x_ref, o_ref):\n    if slow:\n        return slowly(x_ref, o_ref)\n    return x_ref[...] * 2\n"
    best = candidates(file(helper + kernel), Body())[0]
    assert (best.name, best.applicability is Applicability.SAFE) == (
        ("store", True) if end == "return" else ("delete", False)
    )


def test_a_pipeline_stores_in_every_program() -> None:
    source = file("def step(i, x, o):\n    return x[...]\n")
    body = Body("step", [inp("x"), out("o")], entry="plgpu.emit_pipeline", silent=True, varies=True)
    [only] = candidates(source, body)
    assert (only.name, only.applicability) == ("store", Applicability.SAFE)


@pytest.mark.parametrize(
    ("use", "writes"),
    [
        *(("o[...]", False), ("x * o[0]", False), ("-o[1:]", False), ("o.shape, o.dtype", False), ("o[0, i]", False)),
        *(("o[...].sum()", False), ("o[0][...]", False), ('o["a"].shape', False), ("p[...]", False)),
        *(("o[0] = 1", True), ("o[...] += 1", True), ("o[0][...] = 1", True), ('o["a"].at[0]', True)),
        *(("o.at[0]", True), ("fill(o)", True), ("fill(o=o)", True), ("fill(o[0])", True), ("r = o", True)),
        *(("r = [o]", True), ("o.set(1)", True), ("o = o[...]", True), ("return o", True), ("lambda: f(o)", True)),
        *(("jnp.zeros_like(o)", False), ("jnp.full_like(0, o)", True), ("jnp.ones_like(x, o)", True)),
        *(("lambda o: f(o)", False), ("del o[0]", True), ("o[...] = fill(o[...])", True)),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_may_write(use: str, writes: bool, nested: bool) -> None:
    inside = (
        f"    def g():\n        nonlocal o\n        {use}\n    g()"
        if use == "o = o[...]"
        else f"    def g():\n        {use}"
    )
    source = file(f"import jax.numpy as jnp\n\ndef kernel(x, o):\n{inside if nested else '    ' + use}\n")
    names = Names(source)
    [function, *_] = names.nodes(ast.FunctionDef)
    assert may_write(names, function, "o") is writes


UNDER_CONDITION = """
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

AXIS = "wg"

def kernel(x_ref, o_ref, smem):
    wg = lax.axis_index("wg")
    {before}
    @pl.when({test})
    def _():
        {inside}
        return x_ref[...] * 2
    {after}
"""


@pytest.mark.parametrize(
    ("parts", "along", "safe"),
    [
        ({"test": "wg == 0"}, ("wg",), True),
        ({"test": "0 == lax.axis_index(('wg', 'i'))"}, ("wg", "i"), True),
        ({"test": "x_ref[0] > 0"}, (), True),
        ({"test": "x_ref[0] > 0", "inside": "smem[...] = x_ref[...]"}, (), True),
        ({"test": "x_ref[0] > 0"}, ("wg",), False),
        ({"test": "wg == 0"}, ("wg", "i"), False),
        ({"test": "wg != 0"}, ("wg",), False),
        ({"test": "lax.axis_index(AXIS) == 0"}, ("wg",), False),
        ({"test": "wg == 0", "before": "wg = wg + 1"}, ("wg",), False),
    ],
)
def test_a_value_under_a_condition_goes_into_the_only_output(
    parts: dict[str, str], along: tuple[str, ...], safe: bool
) -> None:
    text = UNDER_CONDITION.format(**{"before": "", "inside": "pass", "after": ""} | parts)
    body = Body("_", [inp(), out(), scratch("smem")], entry="pl.when", along=along)
    store, delete = candidates(file(text), body)
    assert file(text).edited(store.edits).text == file(text.replace("return x_ref", "o_ref[...] = x_ref")).text
    assert store.applicability is (Applicability.SAFE if safe else Applicability.UNSAFE)
    assert delete.applicability is Applicability.UNSAFE


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ({"after": "o_ref[0] = 1.0"}, {}),
        ({"after": "plgpu.copy_smem_to_gmem(smem, o_ref)"}, {}),
        ({}, {"written": ("o_ref",)}),
        ({}, {"value": leaf(64)}),
        ({}, {"value": tuple_(V, V)}),
        ({}, {"params": [inp(), out(), out("p_ref")]}),
        ({}, {"params": [inp(), out(None)]}),
        ({}, {"params": []}),
    ],
)
def test_a_value_under_a_condition_that_has_no_sure_place(parts: dict[str, str], body: dict[str, Any]) -> None:
    text = UNDER_CONDITION.format(**{"before": "", "test": "wg == 0", "inside": "pass", "after": ""} | parts)
    [only] = candidates(file(text), Body(**{"name": "_", "params": [inp(), out()], "entry": "pl.when"} | body))
    assert (only.name, only.applicability) == ("delete", Applicability.UNSAFE)


@pytest.mark.parametrize("around", ["@pl.loop(0, 4)\ndef step(i):", "def helper(o_ref):", "for i in range(4):"])
def test_a_value_under_a_condition_in_something_else_has_no_sure_place(around: str) -> None:
    inner = "@pl.when(x_ref[0] > 0)\ndef _():\n    return x_ref[...]\n"
    text = "def kernel(x_ref, o_ref):\n" + textwrap.indent(f"{around}\n{textwrap.indent(inner, '    ')}", "    ")
    source = file(f"from jax.experimental import pallas as pl\n\n{text}")
    [only] = candidates(source, Body("_", entry="pl.when"))
    assert (only.name, only.applicability) == ("delete", Applicability.UNSAFE)


def test_overwriting_one_of_two_outputs_is_unsafe() -> None:
    source = file("def kernel(x_ref, a_ref, b_ref):\n    a_ref[0] = 1.0\n    return x_ref[...], -x_ref[...]\n")
    [only] = candidates(
        source, Body(params=[inp(), out("a_ref"), out("b_ref")], value=tuple_(V, V), written=("a_ref",))
    )
    assert (only.name, only.applicability) == ("store", Applicability.UNSAFE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(w):\n    return w\n", "def f(w):\n    return\n"),
        ("def f(w):\n    return x_ref[w] * 2\n", "def f(w):\n    return\n"),
        ("def f(w):\n    s[w] = v\n    wait()\n    return v\n", "def f(w):\n    s[w] = v\n    wait()\n"),
        ("def f(w):\n    s[w] = v\n    return 2 * v\n", "def f(w):\n    s[w] = v\n"),
        ("def f(w):\n    s[w] = v\n    w = w + v\n    return w\n", "def f(w):\n    s[w] = v\n    w = w + v\n"),
        ("f = lambda w: store(o, w)\n", "def f(w):\n    store(o, w)\n"),
    ],
)
@pytest.mark.parametrize("entry", ["plgpu.warp_map", "pl.core_map", "pl.when"])
def test_what_a_body_without_outputs_returns_may_have_been_meant_for_a_ref(before: str, after: str, entry: str) -> None:
    source = file(before)
    [only] = candidates(source, Body("<lambda>" if "lambda" in before else "f", [], entry=entry))
    assert (source.edited(only.edits).text, only.applicability) == (after, Applicability.UNSAFE)


@pytest.mark.parametrize(
    ("body", "title", "needs_oracle"),
    [
        (Body(), "Store the returned value into `o_ref`", False),
        (Body(params=[inp(), out(dtype="bfloat16")]), "Store the returned value into `o_ref`", False),
        (Body(value=leaf(128, ref="o_ref")), "Delete the returned value, which is stored already", False),
    ],
)
def test_titles_and_safety(body: Body, title: str, needs_oracle: bool) -> None:
    [only] = candidates(file("import jax.numpy as jnp\n\ndef kernel(x_ref, o_ref):\n    return f(x_ref)\n"), body)
    assert (only.title, only.needs_oracle, only.applicability) == (title, needs_oracle, Applicability.SAFE)


def test_a_number_that_fills_an_array_needs_numbers() -> None:
    source = file("import jax\n\ndef kernel(x_ref, o_ref):\n    return 1.0\n")
    [only] = candidates(source, Body(value=leaf(dtype="float")))
    assert (only.name, only.needs_oracle, only.applicability) == ("store", True, Applicability.SAFE)


TWO = [inp(), out("a_ref"), out("b_ref")]

#: name: (text, what was returned, the reason)
LEFT_ALONE: dict[str, tuple[str, Body, str]] = {
    "fewer values": (
        "def kernel(x_ref, a_ref, b_ref):\n    return x_ref[...]",
        Body(params=TWO),
        "it returns 1 value for 2 outputs",
    ),
    "more values": (
        "def kernel(x_ref, o_ref):\n    return x_ref[...], 1",
        Body(value=tuple_(V, leaf())),
        "it returns 2 values for 1 output",
    ),
    "a longer axis": (
        "def kernel(x_ref, o_ref):\n    return x_ref[0]",
        Body(params=[inp(), out("o_ref", 2, 128)]),
        "it returns f32[128], the output is f32[2,128]",
    ),
    "another shape": (
        "def kernel(x_ref, o_ref):\n    return x_ref[:64]",
        Body(value=leaf(64, dtype="bfloat16")),
        "it returns bf16[64], the output is f32[128]",
    ),
    "another structure on another path": (
        "def kernel(x_ref, o_ref):\n    if flag:\n        return x_ref[...], 1\n    return x_ref[...]",
        Body(),
        "its returns differ in structure: see line 3",
    ),
    "keys that name no output": (
        "def kernel(x_ref, a_ref, b_ref):\n    return {'a': x_ref[...], 'c': x_ref[...]}",
        Body(params=TWO, value=dict_(a=V, c=V)),
        "the keys `a` and `c` that it returns do not match its outputs",
    ),
    "keys that differ from those of the output": (
        "def kernel(x_ref, out):\n    return {'a': x_ref[...]}",
        Body(params=[inp(), out("out", tree=dict_(b=V))], value=dict_(a=V)),
        "the keys `a` that it returns do not match its outputs",
    ),
    "a pytree of the user's own": (
        "def kernel(x_ref, o_ref):\n    return State(x_ref[...])",
        Body(value=Tree("other", (V,))),
        "it returns 1 value for 1 output",
    ),
    "an input Ref": (
        "def kernel(x_ref, o_ref):\n    return x_ref",
        Body(value=leaf(128, ref="x_ref")),
        "it returns the Ref `x_ref`, which is no output, in the place of `o_ref`",
    ),
    "the Refs of two outputs, crossed": (
        "def kernel(x_ref, a_ref, b_ref):\n    a_ref[0], b = 1, 2\n    return [f(x_ref), a_ref]",
        Body(params=TWO, value=list_(V, leaf(128, ref="a_ref"))),
        "it returns the Ref `a_ref` in the place of `b_ref`",
    ),
    "an input Ref for one of two outputs": (
        "def kernel(x_ref, a_ref, b_ref):\n    return -x_ref[...], x_ref",
        Body(params=TWO, value=tuple_(V, leaf(128, ref="x_ref"))),
        "it returns the Ref `x_ref`, which is no output, in the place of `b_ref`",
    ),
    "a generator": (
        "def kernel(x_ref, o_ref):\n    yield x_ref[...]\n    return 1",
        Body(),
        "`kernel` is a generator or a coroutine",
    ),
    "a coroutine": (
        "async def kernel(x_ref, o_ref):\n    return x_ref[...]",
        Body(),
        "`kernel` is a generator or a coroutine",
    ),
    "no return of its own": (
        "@returns\ndef kernel(x_ref, o_ref):\n    o_ref[...] = x_ref[...]",
        Body(),
        "`kernel` has no `return` with a value of its own",
    ),
    "an output that is bound again": (
        "def kernel(x_ref, o_ref):\n    o_ref = o_ref.at[0]\n    return x_ref[...]",
        Body(),
        "`o_ref` is bound again in `kernel`",
    ),
    "a vararg that is not unpacked": (
        "def kernel(*refs):\n    x_ref, o_ref = refs[0], refs[1]\n    return x_ref[...]",
        Body(params=[inp(None), out(None)]),
        "`kernel` takes its Refs as `*refs` and does not unpack them to names",
    ),
    "a vararg that is unpacked to another number": (
        "def kernel(*refs):\n    x_ref, *o_refs = refs\n    return x_ref[...]",
        Body(params=[inp(None), out(None)]),
        "`kernel` takes its Refs as `*refs` and does not unpack them to names",
    ),
    "no place for an output": (
        "def kernel(factor=2.0):\n    return iota(factor)",
        Body(params=[out(None)]),
        "the output parameter has no place after `factor`, which has a default",
    ),
    "a scalar, and no jax.numpy": (
        "def kernel(x_ref, o_ref):\n    return 1.0",
        Body(value=leaf()),
        "it returns a scalar for an array, and the file does not import jax.numpy",
    ),
    "a scalar for an array": (
        "def kernel(x_ref, o_ref):\n    return x_ref[0] * 2",
        Body(value=leaf()),
        "it returns f32[], the output is f32[128]",
    ),
    "a Python number that is not written out": (
        "def kernel(x_ref, o_ref):\n    return SCALE",
        Body(value=leaf(dtype="float")),
        "it returns float[], the output is f32[128]",
    ),
    "a number for one of two outputs": (
        "def kernel(x_ref, a_ref, b_ref):\n    return x_ref[...], 0.0",
        Body(params=TWO, value=tuple_(V, leaf(dtype="float"))),
        "it returns 0.0, the output is f32[128]",
    ),
    "a bool": (
        "def kernel(x_ref, o_ref):\n    return True",
        Body(value=leaf(dtype="bool")),
        "it returns True, the output is f32[128]",
    ),
    "a text on another path": (
        "def kernel(x_ref, o_ref):\n    if flag:\n        return 'no'\n    return x_ref[...]",
        Body(),
        "it returns 'no', the output is f32[128]",
    ),
    "perhaps None": (
        "def kernel(x_ref, o_ref):\n    return x_ref[...] if flag else None",
        Body(),
        "what it returns may be None: see line 2",
    ),
    "no outputs": (
        "def kernel(x_ref, o_ref):\n    return x_ref[...] * 2",
        Body(params=[inp(), inp("o_ref")]),
        "it returns 1 value for 0 outputs",
    ),
    "called for its value": (
        "def kernel(x_ref, o_ref):\n    return x_ref[...]\n\ny = 1 + kernel(a, b)",
        Body(),
        "`kernel` is also called at line 4, which needs its value",
    ),
    "called for its value by another name": (
        "import functools\n\ndef kernel(x_ref, o_ref):\n    return x_ref[...]\n\n"
        "bound = functools.partial(kernel)\nother = bound\ny = f(other(a))",
        Body(),
        "`kernel` is also called at line 8, which needs its value",
    ),
    "given to something of JAX's": (
        "from jax import lax\n\ndef kernel(x_ref, o_ref):\n    return x_ref[...]\n\ny = lax.fori_loop(0, 1, kernel, z)",
        Body(),
        "`kernel` is also called at line 6, which needs its value",
    ),
    "an element of a dict": (
        "def double(x_ref, o_ref):\n    return x_ref[...]\n\nOPS = {'double': double}",
        Body("double"),
        "`double` is also used at line 4, which may need its value",
    ),
    "a lambda in a dict": (
        "OPS = {\n    'double': lambda x, o: x[...]}",
        Body("<lambda>", [inp("x"), out("o")]),
        "the lambda is also used at line 2, which may need its value",
    ),
    "an attribute": (
        "def double(x_ref, o_ref):\n    return x_ref[...]\n\nconfig.body = double",
        Body("double"),
        "`double` is also used at line 4, which may need its value",
    ),
    "returned from a function": (
        "def make():\n    def double(x_ref, o_ref):\n        return x_ref[...]\n    return double",
        Body("double"),
        "`double` is also used at line 4, which may need its value",
    ),
    "given to a function that is not known": (
        "def double(x_ref, o_ref):\n    return x_ref[...]\n\npl.kernel(double)\nreference(double)",
        Body("double"),
        "`double` is also used at line 5, which may need its value",
    ),
    "given to a function that calls it": (
        "def double(x_ref, o_ref):\n    return x_ref[...]\n\ndef ref(f, x):\n    return f(x, None)\n\nref(double, 1)",
        Body("double"),
        "`double` is also used at line 7, which may need its value",
    ),
    "given on to a function that keeps it": (
        "def double(x_ref, o_ref):\n    return x_ref[...]\n\ndef keep(f):\n    OPS.append(f)\n\n"
        "def also(*, f):\n    keep(f)\n    g = f\n\nalso(f=double)",
        Body("double"),
        "`double` is also used at line 11, which may need its value",
    ),
    "given to a function that takes anything": (
        "def double(x_ref, o_ref):\n    return x_ref[...]\n\ndef ref(*args):\n    pass\n\nref(double)",
        Body("double"),
        "`double` is also used at line 7, which may need its value",
    ),
    "decorated by something else": (
        "@pl.kernel(out_type=OUT)\n@checked\ndef kernel(x_ref, o_ref):\n    return x_ref[...]",
        Body(),
        "`kernel` is decorated at line 2, which may need its value",
    ),
    "a method that is called for its value": (
        "class A:\n    def kernel(self, x_ref, o_ref):\n        return x_ref[...]\n\n"
        "    def f(self):\n        return self.kernel(a, b)",
        Body(),
        "`kernel` is also called at line 6, which needs its value",
    ),
    "a lambda with a name that is called": (
        "k = lambda x_ref, o_ref: x_ref[...]\ny = k(1, 2) + 1",
        Body("<lambda>"),
        "`k` is also called at line 2, which needs its value",
    ),
    "a lambda in a comprehension": (
        "ks = [pl.kernel(lambda x, o: x[...] * n) for n in (1, 2)]",
        Body("<lambda>", [inp("x"), out("o")]),
        "the lambda uses `n`, which its own statement binds",
    ),
    "a lambda in a lambda": (
        "make = lambda n: pl.kernel(lambda x, o: x[...] * n)",
        Body("<lambda>", [inp("x"), out("o")], at=1),
        "the lambda uses `n`, which its own statement binds",
    ),
    "a lambda in a one-line block": (
        "if True: k = pl.kernel(lambda x, o: x[...])",
        Body("<lambda>", [inp("x"), out("o")]),
        "the statement at line 1 stands in a one-line block",
    ),
}


@pytest.mark.parametrize(("text", "body", "reason"), [pytest.param(*c, id=name) for name, c in LEFT_ALONE.items()])
def test_left_alone(text: str, body: Body, reason: str) -> None:
    with pytest.raises(catalogue.NoFix) as caught:
        candidates(file(text), body)
    assert str(caught.value).endswith(reason)


def test_one_body_that_cannot_be_mended_leaves_all_alone() -> None:
    source = file("def kernel(x_ref, o_ref):\n    return x_ref[...]\n\ndef other(x_ref, o_ref):\n    return x_ref[0]\n")
    with pytest.raises(catalogue.NoFix):
        candidates(source, Body(), Body("other", value=leaf(64)))


def test_facts_that_do_not_fit_the_file() -> None:
    text = "def kernel(x_ref, o_ref):\n    return x_ref[...]\n"
    with pytest.raises(catalogue.NoFix, match=r"`kernel` stands in lib\.py"):
        candidates(file(text), Body(), path="lib.py")
    with pytest.raises(catalogue.NoFix, match="not known what the body returned"):
        candidates(file(text))


def test_a_second_run_finds_nothing() -> None:
    source = file(STORED["control flow"][0])
    [best] = candidates(source, Body())
    with pytest.raises(catalogue.NoFix):
        candidates(source.edited(best.edits), Body())


def test_text_around_is_untouched() -> None:
    text = (
        "# é\r\ndef kernel(x_ref, o_ref):\r\n\tif é:\r\n\t\treturn x_ref[...]  # é\r\n\treturn -x_ref[...]\r\n\r\nx = 1"
    )
    source = SourceFile(PATH, b"\xef\xbb\xbf" + text.encode())
    [best] = candidates(source, Body())
    fixed = source.edited(best.edits)
    assert fixed.bom
    assert fixed.text == (
        "# é\r\ndef kernel(x_ref, o_ref):\r\n\tif é:\r\n\t\to_ref[...] = x_ref[...]  # é\r\n\t\treturn\r\n"
        "\to_ref[...] = -x_ref[...]\r\n\r\nx = 1"
    )


JAX = (
    "function {} at /home/a/k.py:15 traced for {} returned a mutable array reference of type Ref<gmem>{{float32[128]}}"
)


@pytest.mark.parametrize(
    ("kind", "message", "callee"),
    [
        (
            "ValueError",
            "The kernel function in mpmd_map k at /a/k.py:9 should return None. It returns a PyTree: PyTreeDef(*).",
            "",
        ),
        (
            "ValueError",
            "The kernel function in core_map <lambda> at /jax/helpers.py:466 should return None. It returns a PyTree: "
            "PyTreeDef((*, *)).",
            "",
        ),
        (
            "ValueError",
            "The kernel function in the pallas_call double at /a/k.py:9 should return None. It returns a PyTree: *",
            "",
        ),
        ("ValueError", JAX.format("k", "mpmd_map") + ", but mutable array references cannot be returned.", ""),
        ("ValueError", JAX.format("k", "pallas_call") + " at output tree path result[1], but mutable", ""),
        (
            "ReturnedValueDropped",
            "The kernel function in plgpu.kernel double at /a/k.py:9 should return None; its value is dropped",
            "",
        ),
        ("AssertionError", "Shaped arrays must be represented by ir.Values, got: 1.0", "plgpu.kernel"),
        ("TypeError", "cond branch outputs must have the same pytree structure, but they differ:", "pl.when"),
        ("TypeError", "kernel() takes 1 positional argument but 2 were given", "pl.kernel"),
        ("TypeError", "k() takes from 1 to 2 positional arguments but 3 were given", "plgpu.kernel"),
        (
            "TypeError",
            "k() takes 1 positional argument but 2 positional arguments (and 1 keyword-only argument) were given",
            "pl.pallas_call",
        ),
    ],
)
def test_signatures(kind: str, message: str, callee: str) -> None:
    failure = Failure(kind, message, "trace", facts=Facts(callee=callee))
    rules = catalogue.load().ties(failure)
    assert [rule.code for rule in rules] == ["MGF401"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("TypeError", "f() takes 1 positional argument but 2 were given"),
        ("AssertionError", "Shaped arrays must be represented by ir.Values, got: 1.0"),
        ("TypeError", "cond branch outputs must have the same pytree structure, but they differ:"),
        ("ValueError", JAX.format("f", "jit")),
    ],
)
def test_errors_of_the_users_own_are_not_matched(kind: str, message: str) -> None:
    rule = catalogue.load().match(Failure(kind, message, "trace"))
    assert rule is None or rule.code != "MGF401"


def test_explain_page() -> None:
    rule = catalogue.load().find("kernel-returns-value")
    assert rule is not None
    headings = [line.removeprefix("## ") for line in rule.page.splitlines() if line.startswith("## ")]
    assert headings == ["What it means", "Why it happens", "Example", "Use instead", "Fix safety"]


def test_bare_name() -> None:
    assert [bare_name(n) for n in ("sum_ref", "out_sum", "o_smem_ref", "a_out", "x")] == ["sum", "sum", "o", "a", "x"]


ROWS = "from jax import lax\ndef kernel(x_ref, o_ref):\n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ('    i = lax.axis_index("i")\n    return x_ref[i]\n', "    o_ref[i] = x_ref[i]\n"),
        ('    return x_ref[lax.axis_index("i")]\n', '    o_ref[lax.axis_index("i")] = x_ref[lax.axis_index("i")]\n'),
        (
            '    i = lax.axis_index("i")\n    i = i + 1\n    return x_ref[i]\n',
            '    o_ref[lax.axis_index("i")] = x_ref[i]\n',
        ),
    ],
)
def test_a_row_of_the_output_goes_where_the_body_asks_for_its_place(text: str, right: str) -> None:
    source = file(ROWS + text)
    body = Body(params=[inp("x_ref", 4, 128), out("o_ref", 4, 128)], varies=True, along=("i",))
    [found] = candidates(source, body)
    assert source.edited(found.edits).text.endswith(right)
    assert found.applicability is Applicability.UNSAFE


@pytest.mark.parametrize(
    "change",
    [
        {"along": ("i", "j")},
        {"along": ("j",)},
        {"along": (), "varies": False},
        {"value": leaf(1, 128)},
        {"entry": "pl.when"},
        {"entry": "plgpu.emit_pipeline"},
    ],
)
def test_a_row_of_the_output_whose_place_is_not_known(change: dict[str, Any]) -> None:
    source = file(ROWS + '    return x_ref[lax.axis_index("i")]\n')
    body = Body(params=[inp("x_ref", 4, 128), out("o_ref", 4, 128)], varies=True, along=("i",))
    try:
        found = candidates(source, replace(body, **change))
    except catalogue.NoFix as e:
        assert "the output is f32[4,128]" in str(e)
    else:
        assert not any("o_ref[lax" in source.edited(c.edits).text for c in found)
