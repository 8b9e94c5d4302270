"""MGF404: copies between Refs of different shapes. Nothing here imports JAX."""

import pytest
from proposals import proposed

from mgpu_fix.catalogue import NoFix

HEAD = (
    "from jax.experimental import pallas as pl\nfrom jax.experimental.pallas import mosaic_gpu as plgpu\n\n\n"
    "def kernel(x_ref, o_ref, s, barrier, n=1):\n"
)
OUT = "Expected shapes to match, but src has shape (256,) and dst has shape (128,)"
IN = "Expected source shape to be (2, 128), but got (128,). "
OLD = "Expected the SMEM reference to have the same shape as the transformed slice: (256,) != (128,)"


def fixed(body: str, message: str = OUT) -> str:
    text = HEAD + "".join(f"    {line}\n" for line in body.split("\n"))
    source, [only] = proposed(text, "plgpu.copy", "ValueError", message)
    return source.edited(only.edits).text.removeprefix(HEAD).replace("\n    ", "\n").strip()


CASES = {
    "out": (
        "s[pl.ds(0, 128)] = x_ref[...]\nplgpu.copy_smem_to_gmem(s, o_ref)",
        OUT,
        "s[pl.ds(0, 128)] = x_ref[...]\nplgpu.copy_smem_to_gmem(s.at[pl.ds(0, 128)], o_ref)",
    ),
    "out, with Lane semantics": (
        "s[n:129] = x_ref[...]\nplgpu.copy_smem_to_gmem(dst=o_ref, src=s)",
        OLD,
        "s[n:129] = x_ref[...]\nplgpu.copy_smem_to_gmem(dst=o_ref, src=s.at[n:129])",
    ),
    "in and out again": (
        "plgpu.copy_gmem_to_smem(x_ref, s, barrier)\ns[1] += s.shape[0]\nplgpu.copy_smem_to_gmem(s, o_ref)",
        IN,
        "plgpu.copy_gmem_to_smem(x_ref, s.at[1], barrier)\ns[1] += s.shape[0]\nplgpu.copy_smem_to_gmem(s.at[1], o_ref)",
    ),
    "in a function of the kernel": (
        "rows = pl.ds(0, 128)\ns[rows] = x_ref[...]\n@pl.when(n)\ndef _():\n    plgpu.copy_smem_to_gmem(s, o_ref)",
        OUT,
        "rows = pl.ds(0, 128)\ns[rows] = x_ref[...]\n@pl.when(n)\ndef _():\n"
        "    plgpu.copy_smem_to_gmem(s.at[rows], o_ref)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_becomes(case: str) -> None:
    body, message, after = CASES[case]
    assert fixed(body, message) == after


COPY = "\nplgpu.copy_smem_to_gmem(s, o_ref)"


@pytest.mark.parametrize(
    ("body", "message", "reason"),
    [
        ("s[...] = x_ref[...]" + COPY, OUT, "all of `s` is used"),
        ("f(s)\ns[0:128] = x_ref[...]" + COPY, OUT, "all of `s` is used"),
        ("s[0:128] = s[128:256]" + COPY, OUT, "2 parts of it are used"),
        ("pass" + COPY, OUT, "no parts of it are used"),
        ("plgpu.copy_gmem_to_smem(x_ref, s, barrier)\ns[0:128] += 1" + COPY, OLD, "no one"),
        ("for i in range(2):\n    s[pl.ds(i * 128, 128)] = x_ref[...]" + COPY, OUT, "`i`, which says what part"),
        ("n = 2\ns[n:n + 128] = x_ref[...]" + COPY, OUT, "`n`, which says what part"),
        ("s[slot[0]] = x_ref[...]\nslot[0] = 1" + COPY, OUT, r"whether `slot\[0\]` is the same part"),
        ("s[next(slots)] = x_ref[...]" + COPY, OUT, r"whether `next\(slots\)` is the same part"),
        ("s[self.slot] = x_ref[...]" + COPY, OUT, "whether `self.slot` is the same part"),
        ("def f(a):\n    s[a:128] = x_ref[...]\nf(0)" + COPY, OUT, "`a`, which says what part"),
        ("s[0:128] = x_ref[...]\nplgpu.copy_smem_to_gmem(s.at[0:192], o_ref)", OUT, "differ in shape"),
        ("s[0:128] = 1" + COPY, OUT.replace("(128,)", "(512,)"), r"which part of `o_ref` is copied.*\(512,\)"),
        ("s[0] = 1\nplgpu.copy_gmem_to_smem(*args)", IN, "give both Refs of the copy the same shape"),
        (COPY, "Expected dtypes to match but src had type float32 and dst had type float16", "a copy converts nothing"),
        (
            COPY,
            "Expected source shape to be (2,), but got (1,). Dim 0 is partitioned over an axis of size 2.",
            "cluster",
        ),
    ],
)
def test_what_is_left(body: str, message: str, reason: str) -> None:
    if reason == "no one":
        # JAX had nothing to say of the first copy, so that it is the second one that fails.
        text = HEAD + "".join(f"    {line}\n" for line in body.split("\n"))
        with pytest.raises(NoFix, match="all of `s` is copied before line"):
            proposed(text, "plgpu.copy_smem", "ValueError", message)
        return
    with pytest.raises(NoFix, match=reason):
        fixed(body, message)
