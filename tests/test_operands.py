"""MGF410, MGF705 and MGF706: operands in another order, memory or shape. Nothing here imports JAX."""

import pytest
from proposals import proposed

from mgpu_fix.catalogue import NoFix

HEAD = "import jax.numpy as jnp\nfrom jax.experimental.pallas import mosaic_gpu as plgpu\n"
SPACE = ("ValueError", "src must be a SMEM reference, got Ref<gmem>{float32[2048]}")
TMEM = ("ValueError", "Async load only supports TMEM refs")
WIDTH = ("ValueError", "Swizzle 256 is not supported. Only 32, 64 and 128 are accepted.")
TILE = ("ValueError", "Swizzle 128 requires the trailing dimension to be of size 32, but got shape: (8, 2, 8, 64)")


def wgmma(lhs: str, rhs: str, acc: str) -> tuple[str, str]:
    return "ValueError", f"Incompatible shapes for matrix multiplication: lhs={lhs}, rhs=b.shape={rhs}, acc={acc}"


def tcgen05(first: str, a: str, second: str, b: str) -> tuple[str, str]:
    return "ValueError", f"{first} and {second} have incompatible shapes. Expected it. {first}: {a}. {second}: {b}."


COPY = "plgpu.copy_smem_to_gmem(o.at[0], s)"
MULTIPLY = "plgpu.wgmma(acc, a.at[0], b)"
CASES = {
    "a copy": (SPACE, "plgpu.copy", COPY, ["plgpu.copy_smem_to_gmem(s, o.at[0])"]),
    "a copy in a helper": (
        SPACE, "plgpu.copy",
        "def f(n, src, dst):\n    plgpu.copy_smem_to_gmem(src, dst)\n\n\nf(1, a, b)\nf(2, *c)\nf(3, d, e)\n",
        [
            "def f(n, src, dst):\n    plgpu.copy_smem_to_gmem(src, dst)\n\n\nf(1, b, a)\nf(2, *c)\nf(3, d, e)\n",
            "def f(n, src, dst):\n    plgpu.copy_smem_to_gmem(src, dst)\n\n\nf(1, a, b)\nf(2, *c)\nf(3, e, d)\n",
            "def f(n, src, dst):\n    plgpu.copy_smem_to_gmem(dst, src)\n\n\nf(1, a, b)\nf(2, *c)\nf(3, d, e)\n",
        ],
    ),
    "lhs and rhs": (
        wgmma("(64, 128)", "(64, 64)", "(64, 128)"), "plgpu.wgmma", MULTIPLY, ["plgpu.wgmma(acc, b, a.at[0])"],
    ),
    "the rhs": (
        wgmma("(64, 32)", "(128, 32)", "(64, 128)"), "plgpu.wgmma", MULTIPLY,
        ["plgpu.wgmma(acc, a.at[0], b.transpose((1, 0)))"],
    ),
    "the lhs": (
        wgmma("(32, 64)", "(32, 128)", "(64, 128)"), "plgpu.wgmma", MULTIPLY,
        ["plgpu.wgmma(acc, a.at[0].transpose((1, 0)), b)"],
    ),
    "two readings": (
        tcgen05("LHS", "(64, 32)", "RHS", "(64, 32)"), "plgpu.tcgen05", "plgpu.tcgen05_mma(acc, a, b)",
        ["plgpu.tcgen05_mma(acc, a, b.transpose((1, 0)))", "plgpu.tcgen05_mma(acc, a.transpose((1, 0)), b)"],
    ),
    "the rhs on Blackwell": (
        tcgen05("Accumulator", "(128, 256)", "RHS", "(256, 64)"), "plgpu.tcgen05", "plgpu.tcgen05_mma(acc, a, b)",
        ["plgpu.tcgen05_mma(acc, a, b.transpose((1, 0)))"],
    ),
    "a width": (
        WIDTH, "plgpu.Swizzle", "t = plgpu.SwizzleTransform(256)",
        [f"t = plgpu.SwizzleTransform({width})" for width in (128, 64, 32)],
    ),
    "a width with a name": (
        WIDTH, "plgpu.Swizzle", "WIDE = 256\nt = plgpu.SwizzleTransform(swizzle=WIDE)",
        [f"WIDE = 256\nt = plgpu.SwizzleTransform(swizzle={width})" for width in (128, 64, 32)],
    ),
    "tiles": (
        TILE, "",
        "N = 64\nt = plgpu.TilingTransform((8, N)), plgpu.TilingTransform((64,))\nu = plgpu.TilingTransform((8, 16))",
        [
            f"N = 64\nt = plgpu.TilingTransform((8, {a})), plgpu.TilingTransform(({b},))\n"
            "u = plgpu.TilingTransform((8, 16))"
            for a, b in ((32, 32), (32, 64), ("N", 32))
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_way_that_fits_is_proposed(case: str) -> None:
    error, at, before, after = CASES[case]
    source, found = proposed(HEAD + before, at, *error)
    assert [source.edited(c.edits).text for c in found] == [HEAD + text for text in after]
    # Memory may be laid out in any way, what is computed with what may not.
    assert all(c.needs_oracle is (error not in (WIDTH, TILE)) for c in found)


LEFT = {
    "another memory": (TMEM, "plgpu.async", "v = plgpu.async_load_tmem(s)", "the source comes first"),
    "square operands": (
        wgmma("(64, 64)", "(64, 64)", "(64, 128)"), "plgpu.wgmma", MULTIPLY, "(m, k) times (k, n) of one dtype",
    ),
    "dtypes": (
        ("ValueError", "Mixed input dtypes for matrix multiplication unsupported: lhs=float16, rhs=bfloat16"),
        "plgpu.wgmma", MULTIPLY, "of one dtype",
    ),
    "a width that is computed": (WIDTH, "plgpu.Swizzle", "t = plgpu.SwizzleTransform(2 * n)", "takes 32, 64 or 128"),
    "tiles that are computed": (TILE, "", "t = plgpu.TilingTransform((8, 128 // 2))", "tiles of (8, swizzle in bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_what_does_not_fit_in_another_order_is_left(case: str) -> None:
    error, at, text, why = LEFT[case]
    with pytest.raises(NoFix) as caught:
        proposed(HEAD + text, at, *error)
    assert why in str(caught.value)
