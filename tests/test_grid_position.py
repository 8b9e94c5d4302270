"""MGF905: which name stands for pl.program_id, and where none does. Nothing here imports JAX."""

import textwrap

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import SourceFile
from mgpu_fix.upgrade import upgrade
from mgpu_fix.versions import Window

IMPORTS = """\
import functools
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
"""
MESSAGE = "pl.program_id in a kernel over a mesh: JAX lowers it, but its interpreter gives it a wrong value."
FAILURE = Failure("UnreliableGridPosition", MESSAGE, "trace", kernel="body")
ASKS = "def body(o_ref):\n    o_ref[pl.program_id(0)] = pl.num_programs(axis=1)\n"
HELPER = "def place():\n    return pl.program_id(0)\ndef body(o_ref):\n    o_ref[place()] = 1\n"

KERNELS = {
    "given": ("{0}plgpu.kernel(body, out_type=O, grid=(2, 3), grid_names=('i', 'j'))", ("'i'", "'j'")),
    "a decorator": ("@plgpu.kernel(out_type=O, grid=G, grid_names=['i', 'j'])\n{0}", ("'i'", "'j'")),
    "a partial": (
        "k = functools.partial(plgpu.kernel, out_type=O, grid_names=N)\nN = ('i', 'j')\n@k\n{0}",
        ("'i'", "'j'"),
    ),
    "a mesh": ("M = plgpu.Mesh(grid=G, grid_names=('i', 'j'))\n@pl.kernel(out_type=O, mesh=M)\n{0}", ("'i'", "'j'")),
    "names of names": ("I = 'i'\n{0}plgpu.kernel(body, out_type=O, grid=G, grid_names=(I, 'j'))", ("I", "'j'")),
}

REASONS = {
    "names from elsewhere": ("{0}plgpu.kernel(body, out_type=O, grid=G, grid_names=NAMES)", "not written out"),
    "a parameter": (
        "def f(a):\n    plgpu.kernel(body, out_type=O, grid=G, grid_names=(a, 'j'))\n{0}",
        "name 0 of the grid",
    ),
    "too few": ("{0}plgpu.kernel(body, out_type=O, grid=(2,), grid_names=('i',))", "has no axis 1"),
    "clusters": (
        "{0}plgpu.kernel(body, out_type=O, grid=G, grid_names=('i', 'j'), cluster=(2,), cluster_names=('c',))",
        "clusters",
    ),
    "spread": ("{0}plgpu.kernel(body, out_type=O, **more)", "clusters"),
    "several kernels": (
        "{0}plgpu.kernel(body, grid=G, grid_names=('i', 'j'))\nplgpu.kernel(body, grid=G, grid_names=('k', 'j'))",
        "have other names",
    ),
    "no kernel": ("{0}", "not written in this file"),
    "a mesh from elsewhere": ("{0}pl.kernel(body, out_type=O, mesh=mesh())", "not made in this file"),
}


def file(text: str) -> SourceFile:
    return SourceFile("k.py", (IMPORTS + textwrap.dedent(text)).encode())


def candidate(text: str) -> Candidate:
    rule = catalogue.load().find("MGF905")
    assert rule is not None
    [only] = rule.candidates(FAILURE, file(text))
    return only


def fixed(text: str) -> str:
    return file(text).edited(candidate(text).edits).text.removeprefix(IMPORTS)


@pytest.mark.parametrize(("text", "axes"), KERNELS.values(), ids=KERNELS)
def test_the_names_of_the_grid(text: str, axes: tuple[str, str]) -> None:
    asks = ASKS.replace("pl.program_id(0)", f"lax.axis_index({axes[0]})")
    asks = asks.replace("pl.num_programs(axis=1)", f"lax.axis_size({axes[1]})")
    assert fixed(text.format(ASKS)) == text.format(asks)


@pytest.mark.parametrize(("text", "reason"), REASONS.values(), ids=REASONS)
def test_where_no_name_is_known(text: str, reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        candidate(text.format(ASKS))


def test_a_function_that_several_kernels_call() -> None:
    kernels = "plgpu.kernel(body, grid=(4,), grid_names=('i',))\ndef other(o_ref):\n    o_ref[place()] = 2\n"
    same = kernels + "plgpu.kernel(other, grid=(8,), grid_names=('i',))"
    assert "return lax.axis_index('i')" in fixed(HELPER + same)
    with pytest.raises(NoFix, match="have other names"):
        candidate(HELPER + same.replace("(8,), grid_names=('i',)", "(8,), grid_names=('k',)"))


@pytest.mark.parametrize(
    "other",
    [
        "def triton(o_ref):\n    o_ref[place()] = 2\npl.pallas_call(triton, out_shape=O)",
        "pl.pallas_call(body, out_shape=O)",
        "pl.pallas_call(lambda o_ref: body(o_ref), out_shape=O)",
    ],
)
def test_a_function_that_a_kernel_calls_which_is_over_no_mesh(other: str) -> None:
    with pytest.raises(NoFix, match="is also used at line"):
        candidate(HELPER + "plgpu.kernel(body, grid=(4,), grid_names=('i',))\n" + other)


def test_it_is_safe_and_needs_no_numbers() -> None:
    found = candidate(KERNELS["given"][0].format(ASKS))
    assert found.applicability is Applicability.SAFE
    assert not found.needs_oracle


def test_lax_is_imported_where_it_is_not() -> None:
    text = file(KERNELS["given"][0].format(ASKS)).text.replace("from jax import lax\n", "import jax\n")
    rule = catalogue.load().find("MGF905")
    assert rule is not None
    source = SourceFile("k.py", text.encode())
    [only] = rule.candidates(FAILURE, source)
    assert "import jax\nfrom jax import lax\nfrom jax.experimental import pallas" in source.edited(only.edits).text


def test_upgrade_leaves_what_still_lowers() -> None:
    source = file(KERNELS["given"][0].format(ASKS))
    assert upgrade(source, catalogue.load().rules, Window(), Applicability.SAFE).source.data == source.data
