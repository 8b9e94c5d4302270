"""MGF405: what becomes of Python's control flow. Nothing here imports JAX."""

import ast

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import SourceFile

HEAD = """\
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def body(x_ref, o_ref, n):
    i = lax.axis_index("i")
"""
BOOL = ("TracerBoolConversionError", "Attempted boolean conversion of traced array with shape bool[].")
INDEX = ("TracerIntegerConversionError", "The __index__() method was called on traced array with shape int32[]")
VALUE = ("ConcretizationTypeError", "Abstract tracer value encountered where concrete value is expected: traced array")
ARRAY = ("TracerArrayConversionError", "The numpy.ndarray conversion method __array__() was called on traced array")


def proposed(text: str, at: str, error: tuple[str, str]) -> tuple[SourceFile, list[Candidate]]:
    """The candidates for an error at the first expression behind the head that reads ``at``."""
    source = SourceFile(
        "k.py", (HEAD + "".join(f"    {line}\n" if line else "\n" for line in text.split("\n"))).encode()
    )
    nodes = (n for n in ast.walk(source.tree) if isinstance(n, ast.expr) and n.lineno > HEAD.count("\n"))
    span = source.span(next(n for n in nodes if source.segment(n) == at))
    failure = Failure(*error, "trace", span, "body")
    rule = catalogue.load().match(failure)
    assert rule is not None and rule.code == "MGF405"
    return source, list(rule.candidates(failure, source))


def lines(source: SourceFile, candidate: Candidate) -> str:
    """What a candidate makes of the body."""
    text = source.edited(candidate.edits).text
    return "\n".join(line[4:] for line in text.removeprefix(HEAD).splitlines())


WRITTEN = {
    "a branch": ("if i > 0:\n    o_ref[i] = 1", "i > 0", BOOL, "@pl.when(i > 0)\ndef _():\n    o_ref[i] = 1"),
    "on one line": ("if i > 0: o_ref[i] = 1", "i > 0", BOOL, "@pl.when(i > 0)\ndef _(): o_ref[i] = 1"),
    "else of a load": (
        "if x_ref[0] > i:\n    v = x_ref[1]\n    o_ref[i] = v", "x_ref[0] > i", BOOL,
        "@pl.when(x_ref[0] > i)\ndef _():\n    v = x_ref[1]\n    o_ref[i] = v",
    ),
    "each branch its own name": (
        "if i == n:\n    v = 1\n    o_ref[i] = v\nelse:  # not\n    v = 2\n    o_ref[i] = v", "i == n", BOOL,
        "@pl.when(i == n)\ndef _():\n    v = 1\n    o_ref[i] = v\n"
        "@pl.when(i != n)\ndef _():  # not\n    v = 2\n    o_ref[i] = v",
    ),
    "what has no opposite with NaN": (
        "if n < 2:\n    o_ref[0] = 1\nelse:\n    o_ref[0] = 2", "n < 2", BOOL,
        "@pl.when(n < 2)\ndef _():\n    o_ref[0] = 1\n@pl.when(jnp.logical_not(n < 2))\ndef _():\n    o_ref[0] = 2",
    ),
    "an elif": (
        "if i == 0:\n    o_ref[0] = 1\nelif i < 2:\n    o_ref[0] = 2", "i == 0", BOOL,
        "@pl.when(i == 0)\ndef _():\n    o_ref[0] = 1\n@pl.when((i != 0) & (i < 2))\ndef _():\n    o_ref[0] = 2",
    ),
    "the elif that fails": (
        "if n:\n    o_ref[0] = 1\nelif i < 2:\n    o_ref[0] = 2", "i < 2", BOOL,
        "@pl.when(n)\ndef _():\n    o_ref[0] = 1\n@pl.when(jnp.logical_not(n) & (i < 2))\ndef _():\n    o_ref[0] = 2",
    ),
    "a condition over lines": (
        "if (\n    i > 0\n    and i < 3\n):\n    o_ref[i] = 1", "i > 0", BOOL,
        "@pl.when((i > 0) & (i < 3))\ndef _():\n    o_ref[i] = 1",
    ),
    "a name that the function reads": (
        "_ = 1\nif i > 0:\n    o_ref[i] = 1\no_ref[i] = _", "i > 0", BOOL,
        "_ = 1\n@pl.when(i > 0)\ndef _branch():\n    o_ref[i] = 1\no_ref[i] = _",
    ),
    "a value": (
        "v = 1\nif i > 0:\n    v = 2\no_ref[i] = v", "i > 0", BOOL,
        "v = 1\nv = jnp.where(i > 0, 2, v)\no_ref[i] = v",
    ),
    "a value of two": (
        "if i > 0:\n    v = 2\nelse:\n    v = 3\no_ref[i] = v", "i > 0", BOOL,
        "v = jnp.where(i > 0, 2, 3)\no_ref[i] = v",
    ),
    "an update": (
        "v = 1\nif i > 0:\n    v *= n + 1\no_ref[i] = v", "i > 0", BOOL,
        "v = 1\nv = jnp.where(i > 0, v * (n + 1), v)\no_ref[i] = v",
    ),
    "two values": (
        "if i > 0:\n    a = 1\n    b = 2\nelse:\n    b = 3\n    a = 4\no_ref[i] = a + b", "i > 0", BOOL,
        "a = jnp.where(i > 0, 1, 4)\nb = jnp.where(i > 0, 2, 3)\no_ref[i] = a + b",
    ),
    "an early return": (
        "if i > n:\n    # too far\n    return\n# the rest\nfor j in [0, 1]:\n    o_ref[j] = 1\n\no_ref[i] = 2",
        "i > n", BOOL,
        "@pl.when(jnp.logical_not(i > n))\ndef _():\n    # too far\n    # the rest\n    for j in [0, 1]:\n"
        "        o_ref[j] = 1\n\n    o_ref[i] = 2",
    ),
    "an early return on one line": (
        "if i > 0: return\no_ref[i] = 2", "i > 0", BOOL, "@pl.when(i <= 0)\ndef _():\n    o_ref[i] = 2",
    ),
    "an early return after a store": (
        "if i == n:\n    o_ref[i] = 1\n    return None  # done\no_ref[i] = 2", "i == n", BOOL,
        "@pl.when(i == n)\ndef _():\n    o_ref[i] = 1\n\n@pl.when(i != n)\ndef _():  # done\n    o_ref[i] = 2",
    ),
    "a conditional expression": ("o_ref[i] = 1 if i > 0 else n", "i > 0", BOOL, "o_ref[i] = jnp.where(i > 0, 1, n)"),
    "joined conditions": (
        "@pl.when(i > 0 and not i == 3 or 4 < i <= n)\ndef _(): ...", "i > 0 and not i == 3", BOOL,
        "@pl.when(((i > 0) & (i != 3)) | ((4 < i) & (i <= n)))\ndef _(): ...",
    ),
    "a chain": ("@pl.when(0 < i < n)\ndef _(): ...", "0 < i < n", BOOL, "@pl.when((0 < i) & (i < n))\ndef _(): ..."),
    "a loop": (
        "for j in range(i):\n    o_ref[j] = 1", "range(i)", INDEX,
        "@pl.loop(0, i)\ndef _(j):\n    o_ref[j] = 1",
    ),
    "a loop with steps": (
        "for j in range(1, i, 2):\n    v = j\n    o_ref[v] = 1", "range(1, i, 2)", INDEX,
        "@pl.loop(1, i, step=2)\ndef _(j):\n    v = j\n    o_ref[v] = 1",
    ),
    "a loop that hands on": (
        "t = 0\nfor j in range(i):\n    t += x_ref[j]\no_ref[i] = t", "range(i)", INDEX,
        "t = 0\ndef step(j, t):\n    t += x_ref[j]\n    return t\nt = lax.fori_loop(0, i, step, t)\no_ref[i] = t",
    ),
    "a loop that hands on two": (
        "t, step = 0, 1\nfor j in range(i):\n    t = t + step\n    step = j\no_ref[i] = t", "range(i)", INDEX,
        "t, step = 0, 1\ndef step_of_loop(j, carry):\n    t, step = carry\n    t = t + step\n    step = j\n"
        "    return t, step\nt, step = lax.fori_loop(0, i, step_of_loop, (t, step))\no_ref[i] = t",
    ),
    "a slice": ("o_ref[i : i + n] = 1", "o_ref[i : i + n]", BOOL, "o_ref[pl.ds(i, n)] = 1"),
    "a slice of blocks": (
        "v = x_ref.at[:, i * n : (i + 1) * n, 0:4]", "x_ref.at[:, i * n : (i + 1) * n, 0:4]", BOOL,
        "v = x_ref.at[:, pl.ds(i * n, n), 0:4]",
    ),
    "a slice up to a place": ("v = x_ref[i - 4 : i]", "x_ref[i - 4 : i]", BOOL, "v = x_ref[pl.ds(i - 4, 4)]"),
    "min": ("v = min(i, n)", "min(i, n)", BOOL, "v = jnp.minimum(i, n)"),
    "int": ("v = int(i + 1)", "int(i + 1)", VALUE, "v = (i + 1).astype(jnp.int32)"),
    "NumPy": ("v = np.exp(i)", "np.exp(i)", ARRAY, "v = jnp.exp(i)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_it_is_said_in_words_of_jax(name: str) -> None:
    text, at, error, expected = WRITTEN[name]
    source, candidates = proposed(text, at, error)
    assert lines(source, candidates[0]) == expected


LEFT = {
    "a name of another function": (
        "s = 1\ndef f():\n    nonlocal s\n    if i > 0:\n        s = 2\nf()\no_ref[i] = s", "i > 0", BOOL,
        "`s` outlives",
    ),
    "a name of the module": ("global s\nif i > 0:\n    s = 2", "i > 0", BOOL, "`s` outlives the kernel"),
    "a name that is evaluated": ("if i > 0:\n    s = 1\no_ref[i] = eval('s')", "i > 0", BOOL, "`eval` may read"),
    "a dictionary": ("c = {}\nif i > 0:\n    c['s'] = 1", "i > 0", BOOL, "`c['s']` is no place in a Ref"),
    "a list that is stored to": ("c = [0]\nif i > 0:\n    c[0] = 1", "i > 0", BOOL, "`c[0]` is no place in a Ref"),
    "an attribute": ("if i > 0:\n    n.s = 1", "i > 0", BOOL, "`n.s` is no place in a Ref"),
    "a method that may change something": (
        "c = []\nif i > 0:\n    c.append(1)", "i > 0", BOOL,
        "what `c.append(...)` does",
    ),
    "a helper that does": (
        "c = []\ndef f():\n    c.append(1)\nif i > 0:\n    f()", "i > 0",
        BOOL, "what `c.append(...)` does is not known",
    ),
    "a helper that is given an object": (
        "c = {}\ndef f(d):\n    d[0] = 1\nif i > 0:\n    f(c)", "i > 0", BOOL, "what `f(...)` does is not known",
    ),
    "a choice that acts": ("v = n(2) if i > 0 else n(3)", "i > 0", BOOL, "what `n(...)` does is not known"),
    "a loop that counts in a list": (
        "c = []\nfor j in range(i):\n    c.append(j)", "range(i)", INDEX,
        "what `c.append(...)`",
    ),
    "a loop that takes the next": (
        "c = iter(n)\nfor j in range(i):\n    o_ref[j] = next(c)", "range(i)", INDEX,
        "`next(...)`",
    ),
    "a loop whose values a function reads": (
        "s = 1\ndef f(v):\n    return v + s\nfor j in range(i):\n    o_ref[j] = f(j)\n    s = s * 2\no_ref[0] = s",
        "range(i)",
        INDEX, "hand on `s`",
    ),
    "a counter that a function reads": (
        "j = 4\ndef f():\n    return j\nfor j in range(i):\n    o_ref[j] = 1\no_ref[0] = f()", "range(i)",
        INDEX, "`j` is used",
    ),
    "steps back": ("for j in range(i, 0, -1):\n    o_ref[j] = 1", "range(i, 0, -1)", INDEX, "takes steps forward only"),
    "steps that are not known": ("for j in range(0, i, n):\n    o_ref[j] = 1", "range(0, i, n)", INDEX, "forward only"),
    "an early return before what others see": (
        "c = []\nif i > 0:\n    return\nc.append(1)", "i > 0", BOOL, "what `c.append(...)` does is not known",
    ),
    "a return of a value": ("if i > 0:\n    return n\no_ref[i] = 1", "i > 0", BOOL, "a `return` depends on it"),
    "a return in a loop": (
        "for j in [1]:\n    if i > j:\n        return\n    o_ref[j] = 1", "i > j", BOOL, "a `return` depends",
    ),
    "a return before what is set anew": (
        "v = 1\nif i > 0:\n    return\nv = v + 1\no_ref[i] = v", "i > 0", BOOL, "give `v` there another name",
    ),
    "a return before a text of lines": (
        'if i > 0:\n    return\nlen("""a\nb""")', "i > 0", BOOL, "nest what follows under pl.when",
    ),
    "a break": ("for j in range(i):\n    if j:\n        break", "range(i)", INDEX, "a `break` depends on it"),
    "a continue": ("for j in [1]:\n    if i > j:\n        continue\n    o_ref[j] = 1", "i > j", BOOL, "a `continue`"),
    "while": ("while i > 0:\n    i = i - 1", "i > 0", BOOL, "by hand: use @pl.when"),
    "assert": ("assert i > 0", "i > 0", BOOL, "by hand: use @pl.when"),
    "a value and a store": (
        "if i > 0:\n    v = 1\n    o_ref[i] = v\no_ref[i] = v", "i > 0", BOOL,
        "give `v` its value",
    ),
    "a value that is read in the next turn": (
        "for j in [1, 2]:\n    o_ref[j] = v\n    if i > j:\n        v = 1\n        o_ref[0] = v", "i > j", BOOL,
        "give `v`",
    ),
    "what is only loaded sometimes": (
        "if i > 0 and x_ref[i - 1] > 0:\n    o_ref[i] = 1", "i > 0", BOOL, "is only loaded sometimes",
    ),
    "what is only called sometimes": ("if i > 0 and n():\n    o_ref[i] = 1", "i > 0", BOOL, "is only called sometimes"),
    "a number as a condition": ("if i > 0 and n:\n    o_ref[i] = 1", "i > 0", BOOL, "of which `&` takes the bits"),
    "a condition that the first branch changes": (
        "if x_ref[0] > 0:\n    x_ref[0] = 0\nelse:\n    o_ref[0] = 1", "x_ref[0] > 0", BOOL,
        "give the condition a name",
    ),
    "values that need each other": (
        "a, b = 1, 2\nif i > 0:\n    a = b\n    b = a\no_ref[i] = a + b", "i > 0", BOOL, "its value with jnp.where",
    ),
    "a condition that the values change": (
        "a, b = 1, 2\nif a > i:\n    a = 3\n    b = 4\no_ref[i] = a + b", "a > i", BOOL, "which changes `a`",
    ),
    "three values": (
        "if i > 0:\n    v = 1\nelif i > n:\n    v = 2\nelse:\n    v = 3\no_ref[i] = v", "i > 0", BOOL,
        "give `v` its value",
    ),
    "a comment among values": (
        "if i > 0:\n    v = 1  # one\nelse:\n    v = 2\no_ref[i] = v", "i > 0", BOOL, "give `v` its value",
    ),
    "a comment in the head": ("if (i > 0  # positive\n):\n    o_ref[i] = 1", "i > 0", BOOL, "a comment stands in"),
    "a counter that is used later": (
        "for j in range(i):\n    o_ref[j] = 1\no_ref[j] = 2", "range(i)", INDEX,
        "`j` is used",
    ),
    "a value without a start": (
        "for j in range(i):\n    t = j\no_ref[i] = t", "range(i)", INDEX,
        "give `t` a value before",
    ),
    "steps that hand on": (
        "t = 0\nfor j in range(0, i, 2):\n    t += j\no_ref[i] = t", "range(0, i, 2)", INDEX,
        "hand on `t`",
    ),
    "a slice of unknown size": ("o_ref[n:i] = 1", "o_ref[n:i]", BOOL, "how much lies between `n` and `i` is not known"),
    "a slice without an end": ("o_ref[i:] = 1", "o_ref[i:]", BOOL, "with a size that is known"),
    "a list": ("v = [1, 2][i]", "[1, 2][i]", INDEX, "a list of Python's cannot be indexed with it"),
    "another function": ("v = round(i)", "round(i)", VALUE, "by hand: use @pl.when"),
    "a function that NumPy has alone": ("v = np.busday_count(i)", "np.busday_count(i)", ARRAY, "by hand: use @pl.when"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_would_mean_something_else_is_left(name: str) -> None:
    text, at, error, why = LEFT[name]
    with pytest.raises(NoFix) as caught:
        proposed(text, at, error)
    assert why in str(caught.value)


def test_arrays_are_chosen_by_cond() -> None:
    source, [where, cond] = proposed("o_ref[i] = x_ref[i - 1] if i > 0 else n", "i > 0", BOOL)
    # The load is made on both sides then.
    assert where.needs_oracle and where.name == "where"
    assert not cond.needs_oracle and cond.name == "cond"
    assert lines(source, cond) == "o_ref[i] = lax.cond(i > 0, lambda: x_ref[i - 1], lambda: n)"


def test_what_has_no_value_for_a_zero_is_chosen_by_cond_alone() -> None:
    source, [cond] = proposed("if i > 0:\n    v = n // i\nelse:\n    v = 0\no_ref[i] = v", "i > 0", BOOL)
    assert lines(source, cond).startswith("v = lax.cond(i > 0, lambda: n // i, lambda: 0)")


def test_a_name_that_a_function_reads_later_is_chosen() -> None:
    text = "s = 1.0\ndef f(v):\n    return v * s\nif i > 0:\n    s = 3.0\no_ref[i] = f(n)"
    source, candidates = proposed(text, "i > 0", BOOL)
    assert "s = jnp.where(i > 0, 3.0, s)" in lines(source, candidates[0])


def test_a_helper_that_other_code_runs_is_left() -> None:
    text = "def put(v):\n    if v > 0:\n        o_ref[0] = v\nput(i)"
    assert proposed(text, "v > 0", BOOL)[1]
    head = "def put(r, v):\n    if v > 0:\n        r[0] = v\n\n\ndef body(o, i):\n    put(o, i)\n"
    span = SourceFile("k.py", head.encode())
    node = next(n for n in ast.walk(span.tree) if isinstance(n, ast.Compare))
    rule = catalogue.load().find("MGF405")
    assert rule is not None
    failure = Failure(*BOOL, "trace", span.span(node), "body")
    with pytest.raises(NoFix, match=r"has no name for|no place for"):
        list(rule.candidates(failure, span))
    shared = SourceFile("k.py", (head + "put(host, 3)\n").encode())
    with pytest.raises(NoFix, match="other code runs"):
        list(rule.candidates(failure, shared))
