"""MGF501, MGF502 and MGF504: what a declaration becomes, and how sure that is. Nothing here imports JAX."""

import pytest
from proposals import proposed

from mgpu_fix.catalogue import NoFix
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate
from mgpu_fix.source import SourceFile

HEAD = "import functools\nfrom jax import lax\nfrom jax.experimental.pallas import mosaic_gpu as plgpu\n"
THREADS = "num_threads and thread_name must be either both set or both None"
GRID = "grid_names must have the same length as grid"
MEMORY = "packed, collective and layout arguments are only supported for TMEM"
BARRIER = "MMA barrier must have orders_tensor_core set to True."
SAFE, UNSAFE = Applicability.SAFE, Applicability.UNSAFE
#: safe where numbers prove it
PROVEN = "proven"


def candidate(message: str, text: str, at: str) -> tuple[SourceFile, Candidate]:
    source, [only] = proposed(HEAD + text, at, "ValueError", message)
    return source, only


CASES = {
    "one thread without a name": (
        THREADS,
        "k = plgpu.kernel(f, num_threads=1)",
        'k = plgpu.kernel(f, num_threads=1, thread_name="wg")',
        SAFE,
    ),
    "threads whose axis is asked for": (
        THREADS,
        'def f(x):\n    lax.axis_index("g") + lax.axis_index("w")\n'
        'k = plgpu.kernel(f, num_threads=2, grid=(1,), grid_names=("g",))',
        'def f(x):\n    lax.axis_index("g") + lax.axis_index("w")\n'
        'k = plgpu.kernel(f, num_threads=2, grid=(1,), grid_names=("g",), thread_name="w")',
        SAFE,
    ),
    "threads where the devices' axis is asked for": (
        THREADS,
        'm = Mesh(devices, ("x",))\ndef f(x):\n    lax.axis_index("x")\nk = plgpu.kernel(f, num_threads=2)',
        'm = Mesh(devices, ("x",))\ndef f(x):\n    lax.axis_index("x")\n'
        'k = plgpu.kernel(f, num_threads=2, thread_name="wg")',
        UNSAFE,
    ),
    "one thread in a kernel whose blocks are called as threads are": (
        THREADS,
        'def f(x):\n    lax.axis_index("wg")\nk = plgpu.kernel(f, num_threads=1, grid=(2,), grid_names=("wg",))',
        'def f(x):\n    lax.axis_index("wg")\n'
        'k = plgpu.kernel(f, num_threads=1, grid=(2,), grid_names=("wg",), thread_name="wg1")',
        SAFE,
    ),
    "threads that are asked for and not counted": (
        THREADS,
        '@plgpu.kernel(thread_name="wg")\ndef f(x):\n    lax.axis_index("wg")\n',
        '@plgpu.kernel(thread_name="wg", num_threads=1)\ndef f(x):\n    lax.axis_index("wg")\n',
        UNSAFE,
    ),
    "threads that nobody asks for": (
        THREADS,
        "k = plgpu.kernel(f, num_threads=2)",
        'k = plgpu.kernel(f, num_threads=2, thread_name="wg")',
        UNSAFE,
    ),
    "a name without threads": (
        THREADS,
        'k = plgpu.kernel(f, thread_name="wg")',
        'k = plgpu.kernel(f, thread_name="wg", num_threads=1)',
        SAFE,
    ),
    "an axis of size 1": (
        GRID,
        'k = plgpu.kernel(f, grid=(4, 1), grid_names=("g",))',
        'k = plgpu.kernel(f, grid=(4, 1), grid_names=("g", "g1"))',
        SAFE,
    ),
    "an axis that is asked for": (
        GRID,
        'def f(x):\n    lax.axis_index("a"), lax.axis_index("b")\nk = plgpu.kernel(f, grid=(1, n), grid_names=("a",))',
        'def f(x):\n    lax.axis_index("a"), lax.axis_index("b")\n'
        'k = plgpu.kernel(f, grid=(1, n), grid_names=("a", "b"))',
        SAFE,
    ),
    "the only axis, which a helper asks for": (
        GRID,
        'def place():\n    return lax.axis_index("b")\ndef f(x):\n    place()\nk = plgpu.kernel(f, grid=(n,))',
        'def place():\n    return lax.axis_index("b")\ndef f(x):\n    place()\n'
        'k = plgpu.kernel(f, grid=(n,), grid_names=("b",))',
        SAFE,
    ),
    "an axis that may be the one before": (
        GRID,
        'def f(x):\n    lax.axis_index("a"), lax.axis_index("b")\nk = plgpu.kernel(f, grid=(4, n), grid_names=("a",))',
        'def f(x):\n    lax.axis_index("a"), lax.axis_index("b")\n'
        'k = plgpu.kernel(f, grid=(4, n), grid_names=("a", "b"))',
        UNSAFE,
    ),
    "an axis of size 1, which may be another than the one that is asked for": (
        GRID,
        'def f(x):\n    lax.axis_index("a"), lax.axis_index("b")\nk = plgpu.kernel(f, grid=(4, 1), grid_names=("a",))',
        'def f(x):\n    lax.axis_index("a"), lax.axis_index("b")\n'
        'k = plgpu.kernel(f, grid=(4, 1), grid_names=("a", "b"))',
        UNSAFE,
    ),
    "an axis that another kernel asks for": (
        GRID,
        'def f(x): pass\ndef g(x):\n    lax.axis_index("b")\nk = plgpu.kernel(f, grid=(4,))',
        'def f(x): pass\ndef g(x):\n    lax.axis_index("b")\nk = plgpu.kernel(f, grid=(4,), grid_names=("g1",))',
        UNSAFE,
    ),
    "an axis that nobody asks for": (
        GRID,
        'k = plgpu.kernel(f, grid=(4, 2), grid_names=("g",))',
        'k = plgpu.kernel(f, grid=(4, 2), grid_names=("g", "g1"))',
        UNSAFE,
    ),
    "no names at all": (
        GRID,
        "k = plgpu.kernel(f, grid=(1,))",
        'k = plgpu.kernel(f, grid=(1,), grid_names=("g1",))',
        SAFE,
    ),
    "what only TMEM has": (
        MEMORY,
        "k = plgpu.SMEM((8,), d, packed=True, collective=False)",
        "k = plgpu.SMEM((8,), d)",
        SAFE,
    ),
    "a narrow type in TMEM": (
        "dtypes narrower than 32-bit require either the packed argument or an explicit TMEM layout",
        "k = plgpu.TMEM((8,), d)",
        "k = plgpu.TMEM((8,), d, packed=True)",
        PROVEN,
    ),
    "an accumulator of a cluster": (
        "Accumulator Ref must be collective if collective_axis is set.",
        "def f(x, o, acc, a):\n    plgpu.tcgen05_mma(acc.at[0], a, b, collective_axis='c')\n"
        "k = plgpu.kernel(f, scratch_types=dict(acc=plgpu.TMEM((8,), d), a=plgpu.SMEM((8,), d)))",
        "def f(x, o, acc, a):\n    plgpu.tcgen05_mma(acc.at[0], a, b, collective_axis='c')\n"
        "k = plgpu.kernel(f, scratch_types=dict(acc=plgpu.TMEM((8,), d, collective=True), a=plgpu.SMEM((8,), d)))",
        SAFE,
    ),
    "the only barrier": (
        BARRIER,
        "k = plgpu.Barrier()\nplgpu.tcgen05_commit_arrive(b)",
        "k = plgpu.Barrier(orders_tensor_core=True)\nplgpu.tcgen05_commit_arrive(b)",
        SAFE,
    ),
    "a barrier among the scratch": (
        BARRIER,
        "def f(x, o, a, b):\n    plgpu.tcgen05_commit_arrive(b.at[0])\n"
        "k = plgpu.kernel(f, scratch_types=[plgpu.Barrier(), plgpu.Barrier(num_barriers=1, orders_tensor_core=False)])",
        "def f(x, o, a, b):\n    plgpu.tcgen05_commit_arrive(b.at[0])\n"
        "k = plgpu.kernel(f, scratch_types=[plgpu.Barrier(), plgpu.Barrier(num_barriers=1, orders_tensor_core=True)])",
        SAFE,
    ),
    "the barrier of a partial": (
        BARRIER,
        "def f(x, o, a, b):\n    plgpu.tcgen05_commit_arrive(b)\n"
        "made = functools.partial(plgpu.Barrier, num_barriers=1)\nk = plgpu.kernel(f, scratch_types=[made(), made()])",
        "def f(x, o, a, b):\n    plgpu.tcgen05_commit_arrive(b)\n"
        "made = functools.partial(plgpu.Barrier, num_barriers=1)\n"
        "k = plgpu.kernel(f, scratch_types=[made(), made(orders_tensor_core=True)])",
        SAFE,
    ),
    "the barrier of a function": (
        BARRIER,
        "def f(x, o, a, b):\n    plgpu.tcgen05_commit_arrive(b)\ndef made():\n    return plgpu.Barrier()\n"
        "k = plgpu.kernel(f, scratch_types=[plgpu.Barrier(), made()])",
        "def f(x, o, a, b):\n    plgpu.tcgen05_commit_arrive(b)\ndef made():\n"
        "    return plgpu.Barrier(orders_tensor_core=True)\n"
        "k = plgpu.kernel(f, scratch_types=[plgpu.Barrier(), made()])",
        SAFE,
    ),
    "sizes and names that are constants": (
        GRID,
        'SIZES, NAMES = (4, 1), ("g",)\nG = (4, 1)\nN = "g",  # one\nk = plgpu.kernel(f, grid=G, grid_names=N)',
        'SIZES, NAMES = (4, 1), ("g",)\nG = (4, 1)\nN = "g", "g1"  # one\nk = plgpu.kernel(f, grid=G, grid_names=N)',
        SAFE,
    ),
    "names that something else uses, too": (
        GRID,
        'N = ("g",)\nk = plgpu.kernel(f, grid=(4, 1), grid_names=N)\nm = plgpu.kernel(f, grid=(4,), grid_names=N)',
        'N = ("g",)\nk = plgpu.kernel(f, grid=(4, 1), grid_names=("g", "g1"))\n'
        "m = plgpu.kernel(f, grid=(4,), grid_names=N)",
        SAFE,
    ),
    "names that have another name": (
        GRID,
        'M = N = ("g",)\nk = plgpu.kernel(f, grid=(4, 1), grid_names=N)',
        'M = N = ("g",)\nk = plgpu.kernel(f, grid=(4, 1), grid_names=("g", "g1"))',
        SAFE,
    ),
    "more names than axes": (
        GRID,
        'k = plgpu.kernel(f, grid=(4,), grid_names=("g", "h", "i"))',
        'k = plgpu.kernel(f, grid=(4,), grid_names=("g",))',
        SAFE,
    ),
}


def spot(text: str) -> str:
    if "tcgen05" in text:
        return "plgpu.tcgen05"
    return next(call for call in ("plgpu.kernel", "plgpu.SMEM", "plgpu.TMEM") if call in text)


@pytest.mark.parametrize("case", CASES)
def test_what_it_becomes(case: str) -> None:
    message, before, after, level = CASES[case]
    source, fix = candidate(message, before, spot(before))
    assert source.edited(fix.edits).text == HEAD + after
    assert (PROVEN if fix.needs_oracle else fix.applicability) == level


@pytest.mark.parametrize(
    ("message", "text", "reason"),
    [
        (
            GRID,
            'def f(x):\n    lax.axis_index("h")\nk = plgpu.kernel(f, grid=(4,), grid_names=("g", "h"))',
            "has more names than axes, and line 5 says `h`",
        ),
        (GRID, 'G = (4,)\nG += (2,)\nk = plgpu.kernel(f, grid=G, grid_names=("g",))', "are not written out"),
        (GRID, 'k = plgpu.kernel(f, grid=grid, grid_names=("g", "h"))', "are not written out"),
        (
            "LHS Ref must be collective if collective_axis is set.",
            "def f(x, o, acc, a):\n    plgpu.tcgen05_mma(acc, a, b, collective_axis='c')\n"
            "k = plgpu.kernel(f, scratch_types=[plgpu.TMEM((8,), d), plgpu.SMEM((8,), d)])",
            "declare the operand with",
        ),
        (MEMORY, "k = plgpu.SMEM((8,), d, **more)", "are not given by name"),
        (
            BARRIER,
            "def f(x, o, a, b, c):\n    plgpu.tcgen05_commit_arrive(b)\nmade = lambda: plgpu.Barrier()\n"
            "k = plgpu.kernel(f, scratch_types=[made(), made(), plgpu.Barrier()])",
            "which of the file's barriers",
        ),
        (
            BARRIER,
            "k = [plgpu.Barrier(), plgpu.Barrier()]\nplgpu.tcgen05_commit_arrive(b)",
            "which of the file's barriers",
        ),
    ],
)
def test_what_is_left(message: str, text: str, reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        candidate(message, text, spot(text))
