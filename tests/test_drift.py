"""API drift: what each rule rewrites in source alone, what it leaves, and why. Nothing here imports JAX."""

import textwrap

import pytest

from mgpu_fix import catalogue
from mgpu_fix.levels import Applicability
from mgpu_fix.source import SourceFile
from mgpu_fix.upgrade import Upgraded, upgrade
from mgpu_fix.versions import Window, parse

IMPORTS = """\
import functools
import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
"""


def upgraded(text: str, to: str = "0.12.0.1", since: str = "", least: Applicability = Applicability.SAFE) -> Upgraded:
    source = SourceFile("k.py", textwrap.dedent(text).encode())
    window = Window(parse(since) if since else (), parse(to))
    return upgrade(source, catalogue.load().rules, window, least)


def new(text: str, to: str = "0.12.0.1") -> str:
    return upgraded(IMPORTS + textwrap.dedent(text), to).source.text.removeprefix(IMPORTS)


CASES = {
    # Names.
    "name": ("p = plgpu.GPUCompilerParams()", "p = plgpu.CompilerParams()"),
    "under a condition that asks for something else": (
        "if conversion or resignature:\n    p = plgpu.GPUCompilerParams()",
        "if conversion or resignature:\n    p = plgpu.CompilerParams()",
    ),
    "name of another name": ("x = plgpu.GPUMemorySpace.SMEM", "x = plgpu.MemorySpace.SMEM"),
    "name in another module's alias": (
        "import jax.experimental.pallas.mosaic_gpu as mg\np = mg.GPUMesh()",
        "import jax.experimental.pallas.mosaic_gpu as mg\np = mg.Mesh()",
    ),
    "name imported": (
        "from jax.experimental.pallas.mosaic_gpu import GPUMesh\nm = GPUMesh(grid=(1,))",
        "from jax.experimental.pallas.mosaic_gpu import Mesh\nm = Mesh(grid=(1,))",
    ),
    "name imported as another": (
        "from jax.experimental.pallas.mosaic_gpu import GPUMesh as M\nm = M(grid=(1,))",
        "from jax.experimental.pallas.mosaic_gpu import Mesh as M\nm = M(grid=(1,))",
    ),
    "name imported as its new name": (
        "from jax.experimental.pallas.mosaic_gpu import GPUMesh as Mesh\nm = Mesh(grid=(1,))",
        "from jax.experimental.pallas.mosaic_gpu import Mesh\nm = Mesh(grid=(1,))",
    ),
    "name imported where the new one is taken": (
        "from jax.experimental.pallas.mosaic_gpu import GPUMesh\nMesh = 1\nm = GPUMesh(grid=(Mesh,))",
        "from jax.experimental.pallas.mosaic_gpu import Mesh as GPUMesh\nMesh = 1\nm = GPUMesh(grid=(Mesh,))",
    ),
    "name only imported, for others": (
        "from jax.experimental.pallas.mosaic_gpu import GPUMesh",
        "from jax.experimental.pallas.mosaic_gpu import Mesh as GPUMesh",
    ),
    "name in __all__": (
        'from jax.experimental.pallas.mosaic_gpu import GPUMesh\n__all__ = ["GPUMesh"]\nm = GPUMesh()',
        'from jax.experimental.pallas.mosaic_gpu import Mesh as GPUMesh\n__all__ = ["GPUMesh"]\nm = GPUMesh()',
    ),
    "layout": ("l = plgpu.Layout.WGMMA_ROW", "l = plgpu.Layout.WGMMA.reduce(1)"),
    "layout by a name of its own": (
        "L = plgpu.Layout\nl = L.WGMMA_COL\nm = l",
        "L = plgpu.Layout\nl = L.WGMMA.reduce(0)\nm = l",
    ),
    # Arguments.
    "partitioned axis": (
        'plgpu.copy_gmem_to_smem(a, b, c, partitioned_axis=0, collective_axes="x")',
        'plgpu.copy_gmem_to_smem(a, b, c, leader_tracked=plgpu.CopyPartition.PARTITIONED(0), collective_axes="x")',
    ),
    "partitioned axis, perhaps": (
        "plgpu.copy_gmem_to_smem(a, b, c, partitioned_axis=1 if both else None)",
        "plgpu.copy_gmem_to_smem(a, b, c, leader_tracked=plgpu.CopyPartition.PARTITIONED(1) if both else None)",
    ),
    "partitioned axis in a variable": (
        "plgpu.copy_gmem_to_smem(a, b, c, partitioned_axis=axis)",
        "plgpu.copy_gmem_to_smem(a, b, c, leader_tracked=None if axis is None "
        "else plgpu.CopyPartition.PARTITIONED(axis))",
    ),
    "delay_release": (
        """\
        plgpu.emit_pipeline(
            body,
            grid=(4,),
            in_specs=[
                plgpu.BlockSpec((64,), lambda i: (i,)),
                plgpu.BlockSpec(
                    (64,),
                    lambda i: (i,),
                ),
            ],
            out_specs=[plgpu.BlockSpec((64,), lambda i: (i,))],
            delay_release=1,
        )
        """,
        """\
        plgpu.emit_pipeline(
            body,
            grid=(4,),
            in_specs=[
                plgpu.BlockSpec((64,), lambda i: (i,), delay_release=1),
                plgpu.BlockSpec(
                    (64,),
                    lambda i: (i,),
                    delay_release=1,
                ),
            ],
            out_specs=[plgpu.BlockSpec((64,), lambda i: (i,))],
        )
        """,
    ),
    "delay_release of specs that are no GPU's": (
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=[pl.BlockSpec((64,), lambda i: (i,))] * 2, delay_release=d)",
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=[plgpu.BlockSpec((64,), lambda i: (i,), delay_release=d)] * 2)",
    ),
    "delay_release of a spec of outputs, too": (
        "s = pl.BlockSpec((64,), lambda i: (i,))\n"
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=[s, s], out_specs=[s], delay_release=1)",
        "s = pl.BlockSpec((64,), lambda i: (i,))\n"
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=[plgpu.BlockSpec((64,), lambda i: (i,), delay_release=1), "
        "plgpu.BlockSpec((64,), lambda i: (i,), delay_release=1)], out_specs=[s])",
    ),
    "delay_release of nothing": (
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=specs, delay_release=0)",
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=specs)",
    ),
    "delay_release of named specs": (
        """\
        spec = plgpu.BlockSpec((64,), lambda i: (i,))
        specs = [spec, spec]
        plgpu.emit_pipeline_warp_specialized(body, grid=(4,), in_specs=specs, delay_release=1)
        """,
        """\
        spec = plgpu.BlockSpec((64,), lambda i: (i,), delay_release=1)
        specs = [spec, spec]
        plgpu.emit_pipeline_warp_specialized(body, grid=(4,), in_specs=specs)
        """,
    ),
    "approx_math of a mesh": (
        """\
        mesh = plgpu.GPUMesh(grid=(1,), num_threads=2, axis_names=("x", "wg"), approx_math=True)
        @pl.core_map(mesh)
        def _():
            pass
        """,
        """\
        mesh = plgpu.Mesh(grid=(1,), num_threads=2, grid_names=("x",), thread_name="wg")
        @pl.core_map(mesh, compiler_params=plgpu.CompilerParams(approx_math=True))
        def _():
            pass
        """,
    ),
    "axis names without threads": (
        'm = plgpu.GPUMesh(grid=(1, 2), axis_names=("x", "y"))',
        'm = plgpu.Mesh(grid=(1, 2), grid_names=("x", "y"))',
    ),
    "axis names on a line of their own": (
        """\
        plgpu.kernel(
            body,
            out_type=o,
            grid=(1,),
            axis_names=("x", "wg"),
            num_threads=2,
        )
        """,
        """\
        plgpu.kernel(
            body,
            out_type=o,
            grid=(1,),
            grid_names=("x",),
            thread_name="wg",
            num_threads=2,
        )
        """,
    ),
    "load with an index": ("y = plgpu.load(x, (i, pl.ds(0, 8)))", "y = plgpu.load(x.at[i, pl.ds(0, 8)])"),
    "load with everything": ("y = plgpu.load(x, (), layout=l)", "y = plgpu.load(x, layout=l)"),
    "load with an index by keyword": ("y = plgpu.load(x, idx=i, layout=l)", "y = plgpu.load(x.at[i], layout=l)"),
    "Barrier": (
        "b = plgpu.Barrier(1, for_tensor_core=True)",
        "b = plgpu.Barrier(num_arrivals=1, orders_tensor_core=True)",
    ),
    # Functions.
    "pl.load": (
        "y = pl.load(x_ref, (slice(None), pl.ds(0, 8), i, slice(1, n)))",
        "y = x_ref[:, pl.ds(0, 8), i, 1:n]",
    ),
    "pl.load with one index": ("y = pl.load(x_ref, i) + pl.load(x_ref, ...)", "y = x_ref[i] + x_ref[...]"),
    "pl.load in pl.load": ("y = pl.load(x_ref, (pl.load(i_ref, (0,)),))", "y = x_ref[i_ref[0]]"),
    "pl.load of everything": ("y = pl.load(x_ref, ())", "y = x_ref[...]"),
    "pallas_call of a lambda, and an index called refs": (
        "f = pl.pallas_call(lambda o: g(o), O, grid=4, in_specs=[], "
        "out_specs=[pl.BlockSpec((64,), lambda refs: refs)], compiler_params=plgpu.CompilerParams())",
        """\


        def kernel_pipeline(*refs):
            refs_2 = lax.axis_index("refs")
            plgpu.emit_pipeline(
                lambda _, *blocks: (lambda o: g(o))(*blocks),
                grid=(),
                in_specs=[],
                out_specs=[pl.BlockSpec((64,), lambda: refs_2)],
            )(*refs)


        f = plgpu.kernel(kernel_pipeline, out_type=O, grid=(4,), grid_names=("refs",))""",
    ),
    "axis names of a grid, whatever the threads": (
        'm = plgpu.Mesh(grid=(1, 2), num_threads=n, axis_names=("p", "q"))\n'
        'n = plgpu.Mesh(grid=(1, 2), num_threads=n, axis_names=("p", "q", "wg"))',
        'm = plgpu.Mesh(grid=(1, 2), num_threads=n, grid_names=("p", "q"))\n'
        'n = plgpu.Mesh(grid=(1, 2), num_threads=n, grid_names=("p", "q"), thread_name="wg")',
    ),
    "pl.load imported": (
        "from jax.experimental.pallas import load, ds\ny = load(x_ref, (ds(0, 8),))",
        "from jax.experimental.pallas import ds\ny = x_ref[ds(0, 8)]",
    ),
    "pl.load without a mask": ("y = pl.load(x_ref, i, mask=None)", "y = x_ref[i]"),
    "pl.store": (
        "def f():\n    pl.store(o_ref, (slice(None),), x + 1)  # all of it",
        "def f():\n    o_ref[:] = x + 1  # all of it",
    ),
    "transpose_ref": ("y = plgpu.transpose_ref(x.at[0], (1, 0))", "y = x.at[0].transpose((1, 0))"),
    "TransposeTransform": (
        "t = plgpu.TransposeTransform((0, 2, 1, 3, 4))\ns = (tiling, t, swizzle)\nu = [t, swizzle]\nv = (swizzle, t)",
        "s = (tiling, swizzle)\nu = [swizzle]\nv = (swizzle,)",
    ),
    # Bodies.
    "nd_loop": (
        """\
        @plgpu.nd_loop((m, n), collective_axes="sm")
        def loop(idx):
            i, j = idx
        """,
        """\
        @plgpu.nd_loop((m, n), collective_axes="sm")
        def loop(loop_info):
            i, j = loop_info.index
        """,
    ),
    "nd_loop with the step": (
        """\
        @plgpu.nd_loop((m,), collective_axes="sm",
                       include_wave_step=True)
        def loop(idx, wave_step):  # one tile
            '''Doc.'''
            f(idx[0], wave_step)
        """,
        """\
        @plgpu.nd_loop((m,), collective_axes="sm")
        def loop(loop_info):  # one tile
            '''Doc.'''
            wave_step = loop_info.local_index
            f(loop_info.index[0], wave_step)
        """,
    ),
    "nd_loop with a carry": (
        """\
        @plgpu.nd_loop((m,), collective_axes="sm", init_carry=0)
        def loop(idx, carry):
            (i,) = idx
            return carry + i
        """,
        """\
        @plgpu.nd_loop((m,), collective_axes="sm", init_carry=0)
        def loop(loop_info, carry):
            (i,) = loop_info.index
            return carry + i
        """,
    ),
    "nd_loop called": (
        'plgpu.nd_loop((m,), collective_axes="sm")(lambda idx: f(*idx))',
        'plgpu.nd_loop((m,), collective_axes="sm")(lambda loop_info: f(*loop_info.index))',
    ),
    "nd_loop of a partial": (
        """\
        def body(x_ref, idx):
            f(x_ref, idx[0])
        plgpu.nd_loop((m,), collective_axes="sm")(functools.partial(body, x))
        """,
        """\
        def body(x_ref, loop_info):
            f(x_ref, loop_info.index[0])
        plgpu.nd_loop((m,), collective_axes="sm")(functools.partial(body, x))
        """,
    ),
    "pipeline without indices": (
        """\
        def body(x_smem, o_smem):
            o_smem[...] = x_smem[...]
        plgpu.emit_pipeline(body, grid=(4,), in_specs=[s], out_specs=[s])(x, o)
        """,
        """\
        def body(_, x_smem, o_smem):
            o_smem[...] = x_smem[...]
        plgpu.emit_pipeline(body, grid=(4,), in_specs=[s], out_specs=[s])(x, o)
        """,
    ),
    "pipeline of a lambda and a partial": (
        """\
        def body(acc, a, b):
            plgpu.wgmma(acc, a, b)
        plgpu.emit_pipeline(functools.partial(body, acc), grid=(4,), in_specs=[s, s])(x, y)
        plgpu.emit_pipeline(lambda a, b: plgpu.wgmma(acc, a, b), grid=(4,), in_specs=[s] * 2)(x, y)
        """,
        """\
        def body(acc, _, a, b):
            plgpu.wgmma(acc, a, b)
        plgpu.emit_pipeline(functools.partial(body, acc), grid=(4,), in_specs=[s, s])(x, y)
        plgpu.emit_pipeline(lambda _, a, b: plgpu.wgmma(acc, a, b), grid=(4,), in_specs=[s] * 2)(x, y)
        """,
    ),
    "pipeline of what others call": (
        """\
        def body(acc, a, b, *, n):
            plgpu.wgmma(acc, a, b)
        def refs(a, b):
            b[...] = a[...]
        body(acc, x, y, n=1)
        refs(x, y)
        plgpu.emit_pipeline(functools.partial(body, acc, n=2), grid=(4,), in_specs=[s, s])(x, y)
        plgpu.emit_pipeline(refs, grid=(4,), in_specs=[s], out_specs=[s])(x, y)
        plgpu.emit_pipeline(lambda a, b: refs(a, b), grid=(4,), in_specs=[s] * 2)(x, y)
        """,
        """\
        def body(acc, a, b, *, n):
            plgpu.wgmma(acc, a, b)
        def refs(a, b):
            b[...] = a[...]
        body(acc, x, y, n=1)
        refs(x, y)
        plgpu.emit_pipeline(lambda _, *refs: body(acc, *refs, n=2), grid=(4,), in_specs=[s, s])(x, y)
        plgpu.emit_pipeline(lambda _, *refs_2: refs(*refs_2), grid=(4,), in_specs=[s], out_specs=[s])(x, y)
        plgpu.emit_pipeline(lambda _, a, b: refs(a, b), grid=(4,), in_specs=[s] * 2)(x, y)
        """,
    ),
    "core_map over warps": (
        """\
        def kernel(x_ref):
            @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
            def _per_warp():
                warp_id = lax.axis_index("warp")
                @pl.when(warp_id == 0)
                def _():
                    f(lax.axis_index("warp"))
        """,
        """\
        def kernel(x_ref):
            @plgpu.warp_map
            def _per_warp(warp_id):
                @pl.when(warp_id == 0)
                def _():
                    f(warp_id)
        """,
    ),
    "core_map over a mesh with a name": (
        """\
        def kernel(x_ref):
            mesh = plgpu.WarpMesh(axis_name="w")
            @pl.core_map(mesh)
            def _():
                f(lax.axis_index("w"))
        """,
        """\
        def kernel(x_ref):
            @plgpu.warp_map
            def _(warp_id):
                f(warp_id)
        """,
    ),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_rewritten(case: str, newline: str) -> None:
    before, after = (IMPORTS + textwrap.dedent(text) for text in CASES[case])
    done = upgraded(before.replace("\n", newline))
    assert done.source.text == after.replace("\n", newline)
    assert not done.remaining
    assert not upgraded(done.source.text).fixes


LEFT = {
    "another backend's name": "from jax.experimental.pallas import triton as other\np = other.GPUCompilerParams()",
    "asked for": 'P = getattr(plgpu, "GPUCompilerParams", None) or plgpu.CompilerParams',
    "under a condition": "P = plgpu.GPUMesh if hasattr(plgpu, 'GPUMesh') else plgpu.Mesh",
    "for an older version": "if jax.__version_info__ < (0, 6):\n    P = plgpu.GPUMesh",
    "for an older version, by a name": (
        "OLD = jax.__version_info__ < (0, 6)\nP = plgpu.GPUMesh if OLD else plgpu.Mesh\nif OLD:\n    Q = plgpu.GPUMesh"
    ),
    "in a try": "try:\n    P = plgpu.Mesh\nexcept AttributeError:\n    P = plgpu.GPUMesh",
    "nd_loop of today": '@plgpu.nd_loop((m,), collective_axes="sm")\ndef f(idx):\n    (i,) = idx.index',
    "nd_loop that passes on what it gets": '@plgpu.nd_loop((m,), collective_axes="sm")\ndef f(info):\n    g(info)',
    "pipeline with indices": (
        "def body(idx, x):\n    x[...] = idx[0]\nplgpu.emit_pipeline(body, grid=(4,), in_specs=[s])(x)"
    ),
    "pipeline whose body passes on what may be indices": (
        "def body(idx, x):\n    x[...] = scale(idx)\nplgpu.emit_pipeline(body, grid=(4,), in_specs=[s, s])(x, y)"
    ),
    "pipeline that returns": (
        "def body(_, x):\n    return x[...]\nplgpu.emit_pipeline(body, grid=(4,), in_specs=[s], out_specs=[s])(x)"
    ),
    "a copy's collective axes": 'plgpu.copy_gmem_to_smem(a, b, c, collective_axes="x")',
    "core_map over a kernel's mesh": "@pl.core_map(plgpu.Mesh())\ndef _():\n    pass",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_without_a_word(case: str) -> None:
    done = upgraded(IMPORTS + LEFT[case])
    assert done.source.text == IMPORTS + LEFT[case]
    assert not done.remaining
    assert not done.notes


REASONS = {
    "both places say it": (
        "k = plgpu.kernel(f, approx_math=True, compiler_params=plgpu.CompilerParams(approx_math=False))",
        "the parameters at line 6 say approx_math, too",
    ),
    "a decorated body of a pipeline that is used elsewhere": (
        "@functools.partial(plgpu.emit_pipeline, grid=(4,), in_specs=[s], out_specs=[s])\n"
        "def body(x, o):\n    o[...] = x[...]\nbody(a, b)",
        "`body` is also used at line 9",
    ),
    "a body of a pipeline that is bound to what a call gives": (
        "def body(acc, x, o):\n    o[...] = x[...]\nbody(acc, a, b)\n"
        "plgpu.emit_pipeline(functools.partial(body, make()), grid=(4,), in_specs=[s], out_specs=[s])(a, b)",
        "`body` is also used at line 8",
    ),
    "a comment in a call": (
        "y = pl.load(\n    x,  # all of it\n    (slice(None),),\n)",
        "Replace pl.load by ref[idx] would lose a comment",
    ),
    "threads that may not be": (
        'm = plgpu.Mesh(grid=grid, num_threads=n, axis_names=("p", "q"))',
        "whether the kernel at line 6 has threads is not known",
    ),
    "masked load": ("y = pl.load(x, i, mask=m)", "`mask` at line 6 has no other form"),
    "store by what takes turns": (
        "def f():\n    pl.store(o, (next(rows),), x[next(rows)])",
        "line 7 computes the index before the value, and an assignment the value first",
    ),
    "store as a value": ("y = pl.store(x, i, v)", "the value of the call at line 6 is used"),
    "load given away": ("f(pl.load)", "it is used at line 6 other than in a call"),
    "names that are computed": ("m = plgpu.GPUMesh(axis_names=names)", "the names at line 6 are not written out"),
    "specs from elsewhere": (
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=specs, delay_release=1)",
        "the spec at line 6 is not made in this file",
    ),
    "specs of outputs, too": (
        "s = [plgpu.BlockSpec((64,), lambda i: (i,))]\n"
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=s, out_specs=s, delay_release=1)",
        "`s` is also used at line 7, where nothing may be delayed",
    ),
    "a spec of outputs, too, made of what changes": (
        "n = 64\ns = plgpu.BlockSpec((n,), lambda i: (i,))\nn = 32\n"
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=[s], out_specs=[s], delay_release=1)",
        "`n` may be another one at line 9 than at line 7",
    ),
    "a spec of outputs, too, that takes turns": (
        "s = plgpu.BlockSpec((next(sizes),), lambda i: (i,))\n"
        "plgpu.emit_pipeline(body, grid=(4,), in_specs=[s], out_specs=[s], delay_release=1)",
        "the spec at line 6 would be made twice, and its arguments with it",
    ),
    "a loop's body that others call": (
        'def body(idx):\n    (i,) = idx\nplgpu.nd_loop((m,), collective_axes="sm")(body)\nbody((1,))',
        "`body` is also used at line 9",
    ),
    "a region that takes its axis from outside": (
        'def f():\n    return lax.axis_index("warp")\n'
        '@pl.core_map(plgpu.WarpMesh(axis_name="warp"))\ndef _():\n    f()',
        'the axis "warp" is also used at line 7',
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_is_left_and_why(case: str) -> None:
    text, reason = REASONS[case]
    done = upgraded(IMPORTS + text)
    assert reason in [item.reason for item in (*done.remaining, *done.notes)]


def test_a_version_without_the_new_spelling_keeps_the_old_one() -> None:
    text = "plgpu.kernel(body, out_shape=o, compiler_params=plgpu.GPUCompilerParams())"
    assert new(text, "0.10.1") == "plgpu.kernel(body, out_shape=o, compiler_params=plgpu.CompilerParams())"
    assert new(text, "0.4.36") == text


def test_all_places_of_a_symbol_or_none() -> None:
    done = upgraded(f"{IMPORTS}a = pl.load(x, i)\nb = pl.load(x, i, mask=m)\nm = plgpu.GPUMesh()\n")
    assert done.source.text == f"{IMPORTS}a = pl.load(x, i)\nb = pl.load(x, i, mask=m)\nm = plgpu.Mesh()\n"
    assert [(item.message, item.line) for item in done.remaining] == [("pl.load", 6)]
    assert done.symbols == {"plgpu.GPUMesh": 1}


def test_another_backends_code_is_left() -> None:
    for backend in ("triton", "tpu"):
        text = f"""\
            from jax.experimental import pallas as pl
            from jax.experimental.pallas import {backend} as plgpu
            def body(x_ref, o_ref):
                pl.store(o_ref, (slice(None),), pl.load(x_ref, (slice(None),)))
            pl.kernel(body, out_shape=1)
        """
        assert not upgraded(text).fixes


SILENT = """\
def body(x_ref, o_ref):
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _():
        f(lax.axis_index("warp"), lax.axis_size("warp"))


plgpu.kernel(body, out_type=1)
"""


def silent(text: str, since: str = "", to: str = "0.12.0.1") -> list[str]:
    items = upgraded(IMPORTS + text, to, since).notes
    return [item.reason.split(":")[0].rpartition(" ")[2] for item in items if item.code == "MGF909"]


def test_what_changed_silently_since_a_version_is_told() -> None:
    assert silent(SILENT, "0.9.0") == ["0.10.0", "0.11.0"]
    assert sorted(silent(SILENT, "0.6.0")) == ["0.10.0", "0.11.0", "0.6.1"]
    assert silent(SILENT, "0.9.0", "0.10.2") == ["0.10.0"]
    assert silent(SILENT, "0.11.0") == []


def test_without_a_version_other_old_spellings_tell_the_age() -> None:
    assert silent(SILENT) == []
    assert silent(SILENT + "plgpu.Layout.WGMMA_ROW\n") == ["0.10.0", "0.11.0"]
    assert silent(SILENT + "plgpu.load(x, i)\n") == ["0.11.0"]


AGED = """\
def entry(x_ref):
    tiling = plgpu.TilingTransform((64, 32))
    smem = plgpu.SMEM((128, 64), jnp.float16, transforms=(tiling,))
    scratch = [smem, None]
    scratch[1] = smem
    pl.run_scoped(body, (scratch, smem), b=[plgpu.Barrier()] * 2)
    unknown = [smem]
    unknown.append(f())
    pl.run_scoped(body, unknown)
    pl.run_scoped(body, plgpu.ACC((64, 64)))
    pl.run_scoped(body, plgpu.ACC((64, 64)), smem)
    pl.run_scoped(body, smem, collective_axes="wg")


plgpu.kernel(entry, out_type=1, num_threads=2, thread_name="wg")
"""


def test_what_was_right_once_is_changed_in_code_that_is_that_old() -> None:
    after = AGED.replace("(64, 32)", "(8, 32)").replace(
        "[plgpu.Barrier()] * 2)", '[plgpu.Barrier()] * 2, collective_axes="wg")'
    )
    assert upgraded(IMPORTS + AGED).source.text == IMPORTS + AGED
    assert upgraded(IMPORTS + AGED, since="0.6.1").source.text == IMPORTS + AGED
    assert upgraded(IMPORTS + AGED, since="0.5.3").source.text == IMPORTS + after
    old = 'plgpu.GPUMesh(axis_names=("x",))\n'
    assert upgraded(IMPORTS + AGED + old).source.text == f'{IMPORTS}{after}plgpu.Mesh(grid_names=("x",))\n'


def test_lane_semantics_that_are_asked_for_did_not_change() -> None:
    lane = "p = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)\n"
    assert silent(SILENT + lane, "0.9.0") == ["0.10.0"]


def test_a_rule_that_fails_costs_only_what_it_would_find(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = catalogue.load().find("MGF906")
    assert rule is not None

    def fails(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(type(rule), "upgrades", fails)
    done = upgraded(IMPORTS + "m = plgpu.GPUMesh()\ny = pl.load(x, i)\n")
    assert done.source.text == IMPORTS + "m = plgpu.Mesh()\ny = pl.load(x, i)\n"
    assert ["MGF906 itself failed" in item.reason for item in done.remaining] == [True]
