"""MGF404 (dtypes), MGF409, MGF414 to MGF416, MGF202: what becomes of loops, barriers and indices. No JAX here."""

import pytest
from proposals import proposed

from mgpu_fix.catalogue import NoFix

HEAD = (
    "import jax\nimport jax.numpy as jnp\nfrom jax import lax\nfrom jax.experimental import pallas as pl\n"
    "from jax.experimental.pallas import mosaic_gpu as plgpu\n"
)
CARRY = (
    "TypeError",
    "scan body function carry input and carry output must have the same pytree structure, but they differ:\n\n"
    "The input carry component loop_carry[1] is a <class 'tuple'> but the corresponding component of the carry output "
    "is a <class 'NoneType'>, so their Python types differ.",
)
BARE = ("ValueError", "copy_gmem_to_smem without a barrier is only supported on pre-Hopper GPUs")
SEVERAL = ("ValueError", "Operation is only valid for a single barrier, but barrier ref contains 2.")
FLOAT = ("ValueError", 'Unsupported index: OpResult(%81 = "arith.divf"(%79, %80)')
STEP = ("NotImplementedError", "Strided slices not implemented")
TYPES = ("ValueError", "inline_mgpu_p only supports only SomeLayout and RefType arg types.")
DTYPES = ("ValueError", "Expected dtypes to match but src had type bfloat16 and dst had type float16")
COPIED = "def body(x, s, b):\n    plgpu.copy_gmem_to_smem(x, s, b)\nk = plgpu.kernel(body, scratch_types={})"

INDEXED = """\
def k(b):
    f(b.at[0])
    f(b.at[n])
    f(b.at[0])
    def g(i):
        j = i % 2
        f(b.at[j])
"""

CASES = {
    "a loop": (
        CARRY, "lax.fori", "def f(i, a):\n    a = a + i\nlax.fori_loop(0, 4, f, 0)",
        ["def f(i, a):\n    a = a + i\n    return a\nlax.fori_loop(0, 4, f, 0)"],
    ),
    "a loop over a pair": (
        CARRY, "lax.while", "def f(c):\n    a, b = c\n    a, b = b, a\nlax.while_loop(g, f, 0)",
        ["def f(c):\n    a, b = c\n    a, b = b, a\n    return a, b\nlax.while_loop(g, f, 0)"],
    ),
    "a loop of Pallas at the end": (
        CARRY, "pl.loop", "@pl.loop(0, 4, init_carry=0)\ndef f(i, a):\n    a += i",
        ["@pl.loop(0, 4, init_carry=0)\ndef f(i, a):\n    a += i\n    return a\n"],
    ),
    "the next wait": (
        BARE, "plgpu.copy",
        "if c:\n    plgpu.copy_gmem_to_smem(x, s)\nplgpu.barrier_wait(b.at[0])\nplgpu.barrier_wait(c)",
        ["if c:\n    plgpu.copy_gmem_to_smem(x, s, b.at[0])\nplgpu.barrier_wait(b.at[0])\nplgpu.barrier_wait(c)"],
    ),
    "every index": (
        SEVERAL, "plgpu.barrier_wait(b)",
        INDEXED + "    plgpu.barrier_wait(b)\n",
        [f"{INDEXED}    plgpu.barrier_wait(b.at[{index}])\n" for index in ("0", "n", "i % 2")],
    ),
    "halves": (
        FLOAT, "x[", "a = n / 2\nb = (a + m/ 4)\nv = x[b, 1 / 1]", ["a = n // 2\nb = (a + m// 4)\nv = x[b, 1 // 1]"],
    ),
    "types": (
        TYPES, "plgpu.inline", "f = plgpu.inline_mgpu(arg_types=(plgpu.RefType, plgpu.RefType(), L))",
        ["f = plgpu.inline_mgpu(arg_types=(plgpu.RefType(), plgpu.RefType(), L))"],
    ),
    "a dtype": (
        DTYPES, "plgpu.copy", COPIED.format("[plgpu.SMEM((8,), jnp.float16), plgpu.Barrier()]"),
        [COPIED.format("[plgpu.SMEM((8,), jnp.bfloat16), plgpu.Barrier()]")],
    ),
}  # fmt: skip
#: errors whose fixes cannot change what is computed
SURE = (CARRY, TYPES)


@pytest.mark.parametrize("case", CASES)
def test_what_it_becomes(case: str) -> None:
    error, at, before, after = CASES[case]
    source, found = proposed(HEAD + before, at, *error)
    texts = [source.edited(c.edits).text.removeprefix(HEAD) for c in found]
    # The order of the indices is that of the file's blocks.
    assert sorted(texts) == sorted(after)
    assert all(c.needs_oracle is (error not in SURE) for c in found)


LEFT = {
    "a loop that returns": (
        CARRY, "lax.fori", "def f(i, a):\n    a = a + i\n    return\nlax.fori_loop(0, 4, f, 0)", "return what the next",
    ),
    "a loop that sets other names": (
        CARRY, "lax.fori", "def f(i, a):\n    b = a + i\nlax.fori_loop(0, 4, f, 0)", "return what the next step",
    ),
    "a loop whose body is elsewhere": (CARRY, "lax.fori", "lax.fori_loop(0, 4, f, 0)", "return what the next step"),
    "a copy that nobody waits for": (BARE, "plgpu.copy", "plgpu.copy_gmem_to_smem(x, s)", "give the copy a"),
    "a copy whose data is read before": (
        BARE, "plgpu.copy", "plgpu.copy_gmem_to_smem(x, s)\no[...] = s[...]\nplgpu.barrier_wait(b)", "give the copy a",
    ),
    "barriers that have no index": (SEVERAL, "plgpu.barrier", "plgpu.barrier_wait(b)", "say which of the barriers"),
    "an index without a division": (FLOAT, "x[", "v = x[n]", "index with numbers and slices"),
    "a step": (STEP, "x[", "v = x[n / 2]", "index with numbers and slices"),
    "types that are layouts": (TYPES, "plgpu.inline", "f = plgpu.inline_mgpu(arg_types=(L,))", "describe each"),
    "a barrier's dtype": (
        (DTYPES[0], "Expected dtypes to match but src had type float32 and dst had type barrier"), "plgpu.copy",
        COPIED.format("[plgpu.SMEM((8,), jnp.float16), plgpu.Barrier()]"), "a copy converts nothing",
    ),
    "SMEM that is declared elsewhere": (DTYPES, "plgpu.copy", COPIED.format("made()"), "a copy converts nothing"),
    "SMEM of two kernels": (
        DTYPES, "plgpu.copy",
        COPIED.format("[plgpu.SMEM((8,), d), b]") + "\nj = plgpu.kernel(body, scratch_types=[plgpu.SMEM((8,), e), b])",
        "a copy converts nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_known_is_left(case: str) -> None:
    error, at, text, why = LEFT[case]
    with pytest.raises(NoFix) as caught:
        proposed(HEAD + text, at, *error)
    assert why in str(caught.value)
