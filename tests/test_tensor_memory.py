"""MGF503: uses of tensor memory, what they become, and what is left. Nothing here imports JAX."""

import pytest
from proposals import place, proposed

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Facts, TensorMemoryUse
from mgpu_fix.source import SourceFile

HEAD = "from jax.experimental.pallas import mosaic_gpu as plgpu\n\n\ndef kernel(x_ref, o_ref, t):\n"
STORE, LOAD, REUSED = (True, False), (False, False), (False, True)


def fixed(body: str, *uses: tuple[str, tuple[bool, bool]]) -> str:
    text = HEAD + "".join(f"    {line}\n" for line in body.split("\n"))
    source = SourceFile("k.py", text.encode())
    facts = Facts(tensor_memory=tuple(TensorMemoryUse(place(source, at), *kind) for at, kind in uses))
    # Where JAX says that it failed is of no account: with Warpgroup semantics it names the call of the kernel.
    source, [only] = proposed(text, "", "RuntimeError", "Stores to TMEM are asynchronous operations", facts)
    assert only.needs_oracle
    return source.edited(only.edits).text.removeprefix(HEAD).replace("\n    ", "\n").strip()


CASES = {
    "a store": (
        "t[...] = x_ref[...]",
        [("t[...]", STORE)],
        "plgpu.async_store_tmem(t, x_ref[...])\nplgpu.commit_tmem()",
    ),
    "a part, with a comment": (
        "t[:, 0:64] = (x_ref[...])  # half",
        [("t[:", STORE)],
        "plgpu.async_store_tmem(t.at[:, 0:64], (x_ref[...]))  # half\nplgpu.commit_tmem()",
    ),
    "stores to different memory": (
        "t[...] = x_ref[...]\no_ref[0] = x_ref[0]",
        [("t[...]", STORE), ("o_ref[0]", STORE)],
        "plgpu.async_store_tmem(t, x_ref[...])\nplgpu.async_store_tmem(o_ref.at[0], x_ref[0])\nplgpu.commit_tmem()",
    ),
    "stores to the same memory": (
        "t[0] = x_ref[0]\nt[1] = x_ref[1]",
        [("t[0]", STORE), ("t[1]", STORE)],
        "plgpu.async_store_tmem(t.at[0], x_ref[0])\nplgpu.commit_tmem()\n"
        "plgpu.async_store_tmem(t.at[1], x_ref[1])\nplgpu.commit_tmem()",
    ),
    "a store of what was just stored": (
        "t[...] = x_ref[...]\no_ref[...] = t[...]",
        [("t[...]", STORE), ("o_ref[...]", STORE), ("t[...]\n", LOAD)],
        "plgpu.async_store_tmem(t, x_ref[...])\nplgpu.commit_tmem()\n"
        "plgpu.async_store_tmem(o_ref, plgpu.async_load_tmem(t))\nplgpu.commit_tmem()",
    ),
    "a load": ("o_ref[...] = t[...] + 1", [("t[...]", LOAD)], "o_ref[...] = plgpu.async_load_tmem(t) + 1"),
    "a load of what is written to later": (
        "y = t[0:64]",
        [("t[0", REUSED)],
        "y = plgpu.async_load_tmem(t.at[0:64])\nplgpu.wait_load_tmem()",
    ),
    "a returned load of what is written to later": (
        "return 2 * t[...]",
        [("t[...]", REUSED)],
        "loaded = plgpu.async_load_tmem(t)\nplgpu.wait_load_tmem()\nreturn 2 * loaded",
    ),
    "in place": (
        "t[...] -= x_ref[...] - 1",
        [("t[...]", STORE), ("t[...]", REUSED)],
        "loaded = plgpu.async_load_tmem(t)\nplgpu.wait_load_tmem()\n"
        "plgpu.async_store_tmem(t, loaded - (x_ref[...] - 1))\nplgpu.commit_tmem()",
    ),
    "a store of what is loaded": (
        "t[0] = t[1] + t[2]",
        [("t[0]", STORE), ("t[1]", REUSED), ("t[2]", REUSED)],
        "loaded = plgpu.async_load_tmem(t.at[1])\nloaded2 = plgpu.async_load_tmem(t.at[2])\nplgpu.wait_load_tmem()\n"
        "plgpu.async_store_tmem(t.at[0], loaded + loaded2)\nplgpu.commit_tmem()",
    ),
    "functions of Pallas": (
        "y = plgpu.load(t, layout=plgpu.Layout.TCGEN05, optimized=False)\nplgpu.store(t, y)",
        [("plgpu.load", REUSED), ("plgpu.store", STORE)],
        "y = plgpu.async_load_tmem(t, layout=plgpu.Layout.TCGEN05)\nplgpu.wait_load_tmem()\n"
        "plgpu.async_store_tmem(t, y)\nplgpu.commit_tmem()",
    ),
    "what is there already": (
        "t[...] = x_ref[...]\nplgpu.commit_tmem()\ny = t[...]\nplgpu.wait_load_tmem()",
        [("t[...] =", STORE), ("t[...]\n    plgpu.wait", REUSED)],
        "plgpu.async_store_tmem(t, x_ref[...])\nplgpu.commit_tmem()\n"
        "y = plgpu.async_load_tmem(t)\nplgpu.wait_load_tmem()",
    ),
    "a name that is taken": (
        "loaded = x_ref[...]\nt[...] += loaded",
        [("t[...]", STORE), ("t[...]", REUSED)],
        "loaded = x_ref[...]\nloaded2 = plgpu.async_load_tmem(t)\nplgpu.wait_load_tmem()\n"
        "plgpu.async_store_tmem(t, loaded2 + loaded)\nplgpu.commit_tmem()",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_becomes(case: str) -> None:
    body, uses, after = CASES[case]
    assert fixed(body, *uses) == after


@pytest.mark.parametrize(
    ("body", "uses", "reason"),
    [
        ("t[...] = x_ref[...]; y = 1", [("t[...]", STORE)], "does not stand alone"),
        ("if x_ref: t[...] = x_ref[...]", [("t[...]", STORE)], "does not stand alone"),
        ("y = t[...] = x_ref[...]", [("t[...]", STORE)], "cannot be rewritten"),
        ("t[...] = 1, 2", [("t[...]", STORE)], "no plain value"),
        ("plgpu.store(t, x_ref[...], optimized=False)", [("plgpu.store", STORE)], "cannot be rewritten"),
        ("y = plgpu.load(t, 0)", [("plgpu.load", LOAD)], "cannot be rewritten"),
        ("f(lambda: t[...])", [("t[...]", REUSED)], "nothing can wait for it there"),
        ("y = t[...] if x_ref else 0", [("t[...]", REUSED)], "nothing can wait for it there"),
        ("t[0] = t[1] if x_ref else 0", [("t[0]", STORE), ("t[1]", REUSED)], "nothing can wait for it there"),
        ("while t[...]:\n    pass", [("t[...]", REUSED)], "does not stand alone"),
        ("pass", [], "by hand: use plgpu.async_store_tmem"),
    ],
)
def test_what_is_left(body: str, uses: list[tuple[str, tuple[bool, bool]]], reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        fixed(body, *uses)
