"""MGF901: what is renamed, what is left alone, and why. Nothing here imports JAX."""

import ast
import textwrap
import time
from pathlib import Path

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import SourceFile

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "MGF901-renamed-argument").glob("*/before.py"))
IMPORTS = """\
import functools
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
"""
FAILURE = Failure("TypeError", "Mesh.__init__() got an unexpected keyword argument 'out_shape'", "import")


def candidate(source: SourceFile) -> Candidate:
    rule = catalogue.load().find("MGF901")
    assert rule is not None
    [only] = rule.candidates(FAILURE, source)
    return only


def fixed(text: str, newline: str = "\n") -> str:
    source = SourceFile("k.py", text.replace("\n", newline).encode())
    return source.edited(candidate(source).edits).text


def title(text: str) -> str:
    return candidate(SourceFile("k.py", (IMPORTS + text).encode())).title


RENAMES = {
    "keyword": (
        "plgpu.kernel(body, out_shape=O, scratch_shapes=[S])",
        "plgpu.kernel(body, out_type=O, scratch_types=[S])",
    ),
    "spaces around the equals sign": (
        "plgpu.kernel(body, out_shape = O)",
        "plgpu.kernel(body, out_type = O)",
    ),
    "pl.kernel": (
        "pl.kernel(body, mesh=M, out_shape=O)",
        "pl.kernel(body, mesh=M, out_type=O)",
    ),
    "pl.kernel keeps a positional type": (
        "pl.kernel(body, O, mesh=M, scratch_shapes=())",
        "pl.kernel(body, O, mesh=M, scratch_types=())",
    ),
    "both callees at once": (
        "pl.kernel(a, mesh=M, out_shape=O)\nplgpu.kernel(b, out_shape=O)",
        "pl.kernel(a, mesh=M, out_type=O)\nplgpu.kernel(b, out_type=O)",
    ),
    "decorator of a method's local function": (
        """
        class A:
            def run(self):
                @plgpu.kernel(
                    out_shape=O,  # result
                )
                def body(x_ref, o_ref):
                    pass
        """,
        """
        class A:
            def run(self):
                @plgpu.kernel(
                    out_type=O,  # result
                )
                def body(x_ref, o_ref):
                    pass
        """,
    ),
    "module in full": (
        "import jax.experimental.pallas.mosaic_gpu\njax.experimental.pallas.mosaic_gpu.kernel(b, out_shape=O)",
        "import jax.experimental.pallas.mosaic_gpu\njax.experimental.pallas.mosaic_gpu.kernel(b, out_type=O)",
    ),
    "private module": (
        "from jax._src.pallas.mosaic_gpu import core\ncore.kernel(b, out_shape=O)",
        "from jax._src.pallas.mosaic_gpu import core\ncore.kernel(b, out_type=O)",
    ),
    "star import": (
        "from jax.experimental.pallas.mosaic_gpu import *\nkernel(b, out_shape=O)",
        "from jax.experimental.pallas.mosaic_gpu import *\nkernel(b, out_type=O)",
    ),
    "import that may fail": (
        """
        try:
            import jax.experimental.pallas.mosaic_gpu as m
        except ImportError:
            m = None
        m.kernel(out_shape=O)
        """,
        """
        try:
            import jax.experimental.pallas.mosaic_gpu as m
        except ImportError:
            m = None
        m.kernel(out_type=O)
        """,
    ),
    "positional": (
        "plgpu.kernel(body, O)\nplgpu.kernel(body, O, grid=(1,))",
        "plgpu.kernel(body, out_type=O)\nplgpu.kernel(body, out_type=O, grid=(1,))",
    ),
    "positional in parentheses, among comments": (
        "plgpu.kernel((body) # c, (d\n, ((O)), grid=(1,))\nplgpu.kernel(body, (O, P))",
        "plgpu.kernel((body) # c, (d\n, out_type=((O)), grid=(1,))\nplgpu.kernel(body, out_type=(O, P))",
    ),
    "positional on a continued line": (
        "plgpu.kernel(body, \\\n    O)",
        "plgpu.kernel(body, \\\n    out_type=O)",
    ),
    "partial": (
        "functools.partial(plgpu.kernel, body, O)\nfunctools.partial(plgpu.kernel, out_shape=O)(body)",
        "functools.partial(plgpu.kernel, body, out_type=O)\nfunctools.partial(plgpu.kernel, out_type=O)(body)",
    ),
    "partial of partial, bound to names": (
        """
        base = functools.partial(plgpu.kernel, num_threads=2)
        make = functools.partial(base, body, thread_name="wg")
        make(O)
        make(scratch_shapes=())
        functools.partial(base, body)(O)
        """,
        """
        base = functools.partial(plgpu.kernel, num_threads=2)
        make = functools.partial(base, body, thread_name="wg")
        make(out_type=O)
        make(scratch_types=())
        functools.partial(base, body)(out_type=O)
        """,
    ),
    "alias by assignment": (
        "k = plgpu.kernel\nk2 = k\n@k2(out_shape=O)\ndef body(o_ref): ...",
        "k = plgpu.kernel\nk2 = k\n@k2(out_type=O)\ndef body(o_ref): ...",
    ),
    "alias that is the same in all branches": (
        """
        if x:
            k = functools.partial(plgpu.kernel, a=1)
        else:
            k = functools.partial(plgpu.kernel, a=2)
        k(b, O)
        """,
        """
        if x:
            k = functools.partial(plgpu.kernel, a=1)
        else:
            k = functools.partial(plgpu.kernel, a=2)
        k(b, out_type=O)
        """,
    ),
    "wrapper": (
        """
        def make(tag, *args, **kwargs):
            kwargs.setdefault("grid", (1,))
            if "debug" in kwargs and kwargs["debug"]:
                print(tag)
            return plgpu.kernel(*args, interpret=kwargs.pop("interpret", None), **kwargs)
        make("a", body, O, scratch_shapes=())
        functools.partial(make, "b", out_shape=O)
        """,
        """
        def make(tag, *args, **kwargs):
            kwargs.setdefault("grid", (1,))
            if "debug" in kwargs and kwargs["debug"]:
                print(tag)
            return plgpu.kernel(*args, interpret=kwargs.pop("interpret", None), **kwargs)
        make("a", body, out_type=O, scratch_types=())
        functools.partial(make, "b", out_type=O)
        """,
    ),
    "wrapper of a wrapper, and a lambda": (
        """
        inner = lambda body, *rest, **kw: plgpu.kernel(body, *rest, **kw)
        def outer(**kw):
            def decorate(body):
                return inner(body, **kw)
            return decorate
        @outer(out_shape=O)
        def body(o_ref): ...
        inner(body, O)
        """,
        """
        inner = lambda body, *rest, **kw: plgpu.kernel(body, *rest, **kw)
        def outer(**kw):
            def decorate(body):
                return inner(body, **kw)
            return decorate
        @outer(out_type=O)
        def body(o_ref): ...
        inner(body, out_type=O)
        """,
    ),
    "wrapper method, inherited": (
        """
        class Base:
            def kernel(self, *args, **kwargs):
                return plgpu.kernel(*args, **kwargs)
            @staticmethod
            def static(*args, **kwargs):
                return plgpu.kernel(*args, **kwargs)
            @classmethod
            def make(cls, *args, **kwargs):
                return plgpu.kernel(*args, **kwargs)
        class Test(Base):
            def test(self):
                @self.kernel(out_shape=O)
                def body(o_ref): ...
                self.kernel(body, O)
                self.static(body, O)
                Base.make(body, O)
        """,
        """
        class Base:
            def kernel(self, *args, **kwargs):
                return plgpu.kernel(*args, **kwargs)
            @staticmethod
            def static(*args, **kwargs):
                return plgpu.kernel(*args, **kwargs)
            @classmethod
            def make(cls, *args, **kwargs):
                return plgpu.kernel(*args, **kwargs)
        class Test(Base):
            def test(self):
                @self.kernel(out_type=O)
                def body(o_ref): ...
                self.kernel(body, out_type=O)
                self.static(body, out_type=O)
                Base.make(body, out_type=O)
        """,
    ),
    "wrapper with the parameter": (
        """
        def make(out_shape, **kw):
            return plgpu.kernel(body, out_shape=out_shape, **kw)
        make(out_shape=O, scratch_shapes=())
        """,
        """
        def make(out_shape, **kw):
            return plgpu.kernel(body, out_type=out_shape, **kw)
        make(out_shape=O, scratch_types=())
        """,
    ),
    "parameter that is a dictionary of options": (
        """
        def launch(body, options, *, n=1):
            return plgpu.kernel(body, **options)
        launch(a, dict(out_shape=O))
        launch(b, options={"out_shape": O}, n=2)
        """,
        """
        def launch(body, options, *, n=1):
            return plgpu.kernel(body, **options)
        launch(a, dict(out_type=O))
        launch(b, options={"out_type": O}, n=2)
        """,
    ),
    "dictionaries": (
        """
        common = dict(out_shape=O, grid=(1,))
        more = {'scratch_shapes': S, **common}
        more["out_shape"] = P
        if "scratch_shapes" not in more:
            more.setdefault("scratch_shapes", T)
        plgpu.kernel(body, **more)
        plgpu.kernel(body, **common)
        plgpu.kernel(body, **dict(common, scratch_shapes=1))
        plgpu.kernel(body, **({"out_shape": O} if x else {}))
        """,
        """
        common = dict(out_type=O, grid=(1,))
        more = {'scratch_types': S, **common}
        more["out_type"] = P
        if "scratch_types" not in more:
            more.setdefault("scratch_types", T)
        plgpu.kernel(body, **more)
        plgpu.kernel(body, **common)
        plgpu.kernel(body, **dict(common, scratch_types=1))
        plgpu.kernel(body, **({"out_type": O} if x else {}))
        """,
    ),
    "one-line blocks and statements that share a line": (
        "if x: plgpu.kernel(b, out_shape=1)\nelse: plgpu.kernel(b, out_shape=2); plgpu.kernel(b, 3)",
        "if x: plgpu.kernel(b, out_type=1)\nelse: plgpu.kernel(b, out_type=2); plgpu.kernel(b, out_type=3)",
    ),
    "non-ASCII text before it": (
        "x = 'größe'; plgpu.kernel(body, name='ö', out_shape=O)",
        "x = 'größe'; plgpu.kernel(body, name='ö', out_type=O)",
    ),
    "only the keyword of nested calls": (
        "plgpu.kernel(body, out_shape=out_shape(out_shape=plgpu.kernel(b, out_shape=O)))",
        "plgpu.kernel(body, out_type=out_shape(out_shape=plgpu.kernel(b, out_type=O)))",
    ),
}

DROPS = {
    "in one line": (
        "plgpu.kernel(out_shape=O, out_type=O)\nplgpu.kernel(body, out_type=O, out_shape=O)",
        "plgpu.kernel(out_type=O)\nplgpu.kernel(body, out_type=O)",
    ),
    "positional too": (
        "plgpu.kernel(body, O, out_type=O)",
        "plgpu.kernel(body, out_type=O)",
    ),
    "own line": (
        """
        plgpu.kernel(
            body,  # the body
            out_shape=O,
            # the result
            out_type=O,
        )
        """,
        """
        plgpu.kernel(
            body,  # the body
            # the result
            out_type=O,
        )
        """,
    ),
    "own line with comments": (
        """
        plgpu.kernel(
            out_type=O,  # new
            # for 0.10
            out_shape=O,  # old
            grid=(1,))
        """,
        """
        plgpu.kernel(
            out_type=O,  # new
            # for 0.10
            # old
            grid=(1,))
        """,
    ),
    "first line": (
        """
        plgpu.kernel(
            out_shape=O,
            out_type=O)
        """,
        """
        plgpu.kernel(
            out_type=O)
        """,
    ),
    "last line": (
        """
        plgpu.kernel(
            out_type=O,
            out_shape=O,
        )
        """,
        """
        plgpu.kernel(
            out_type=O,
        )
        """,
    ),
    "last line without a comma": (
        """
        plgpu.kernel(
            out_type=O,
            out_shape=O)
        """,
        """
        plgpu.kernel(
            out_type=O)
        """,
    ),
    "last line after a comment": (
        """
        plgpu.kernel(
            out_type=O,  # new
            out_shape=O)
        """,
        """
        plgpu.kernel(
            out_type=O  # new
            )
        """,
    ),
    "a line shared with the one that stays": (
        """
        plgpu.kernel(
            body, out_type=O, out_shape=O,  # both
            scratch_shapes=S, scratch_types=S,
        )
        """,
        """
        plgpu.kernel(
            body, out_type=O,  # both
            scratch_types=S,
        )
        """,
    ),
    "in a decorator, with the other keyword renamed in the body": (
        """
        def make():
            @plgpu.kernel(
                out_shape=O,
                out_type=O,
            )
            def outer(x_ref, o_ref):
                options = {"out_shape": O}
                plgpu.kernel(inner, scratch_shapes=S, **options)  # nested
                plgpu.kernel(inner, O)
        """,
        """
        def make():
            @plgpu.kernel(
                out_type=O,
            )
            def outer(x_ref, o_ref):
                options = {"out_type": O}
                plgpu.kernel(inner, scratch_types=S, **options)  # nested
                plgpu.kernel(inner, out_type=O)
        """,
    ),
    "in an else and an elif": (
        """
        if a:
            pass
        elif plgpu.kernel(out_type=O, out_shape=O):
            pass
        else: plgpu.kernel(out_type=O, out_shape=O)
        """,
        """
        if a:
            pass
        elif plgpu.kernel(out_type=O):
            pass
        else: plgpu.kernel(out_type=O)
        """,
    ),
}

LEFT_ALONE = {
    "pallas_call": "pl.pallas_call(body, out_shape=O, grid=(1,))",
    "partial of pallas_call": "functools.partial(pl.pallas_call, out_shape=O)",
    "another backend's plgpu": "from jax.experimental.pallas import triton as plgpu\nplgpu.kernel(body, out_shape=O)",
    "a parameter named plgpu": "def f(plgpu):\n    plgpu.kernel(body, out_shape=O)",
    "another function named kernel": "def kernel(**kw): ...\nkernel(body, out_shape=O)",
    "an unknown method": "class A:\n    def f(self):\n        self.kernel(body, out_shape=O)",
    "a name with two meanings": "k = plgpu.kernel\nk = pl.pallas_call\nk(body, out_shape=O)",
    "local variables": "out_shape = O\nscratch_shapes = ()\nplgpu.kernel(body, out_type=out_shape)",
    "up to date": "plgpu.kernel(body, out_type=O, scratch_types=[])",
    "a call of the kernel": "plgpu.kernel(body, out_type=O)(x, y)",
    "an unknown number of positions": "plgpu.kernel(*args)\nplgpu.kernel(*args, O)\nplgpu.kernel(body, O, *args)",
    "too many positions": "plgpu.kernel(body, O, P, S)",
    "a wrapper that uses the value": """
        def make(body, **kw):
            print(kw["out_shape"])
            return plgpu.kernel(body, **kw)
        make(body, out_shape=O)
        """,
    "a wrapper that passes it on elsewhere": """
        def make(body, **kw):
            return plgpu.kernel(body, **kw) if gpu else pl.pallas_call(body, **kw)
        make(body, out_shape=O)
        """,
    "a wrapper that translates": """
        def make(body, **kw):
            out = kw.pop("out_shape")
            return plgpu.kernel(body, out_type=out, **kw)
        make(body, out_shape=O)
        """,
    "a wrapper that never calls a kernel": "def make(**kw):\n    kw.get('x')\nmake(out_shape=O)",
    "a wrapper of itself": "def make(**kw):\n    return make(**kw)\nmake(out_shape=O)",
    "a dictionary for pallas_call": "c = dict(out_shape=O)\npl.pallas_call(body, **c)\nplgpu.kernel(body, **c)",
    "a dictionary that is printed": "c = {'out_shape': O}\nprint(c)\nplgpu.kernel(body, **c)",
    "a dictionary bound twice": "c = {'out_shape': O}\nc = {}\nplgpu.kernel(body, **c)",
    "a dictionary that is a key": "c = {'out_shape': O}\nplgpu.kernel(body, **{c: 1}, **c)",
    "a value in a dictionary": "c = {'grid': 'out_shape'}\nplgpu.kernel(body, **c)",
    "a class that inherits from itself": "class A(A):\n    def f(self):\n        self.kernel(out_shape=O)",
    "text": "'''plgpu.kernel(body, out_shape=O)'''",
    "nothing": "",
}

BOTH_GIVEN = {
    "keywords": "plgpu.kernel(body, out_shape=O, out_type=P)",
    "scratch": "plgpu.kernel(body, out_type=O, scratch_shapes=S, scratch_types=T)",
    "positional": "plgpu.kernel(body, O, out_type=P)",
    "pl.kernel": "pl.kernel(body, mesh=M, out_shape=O, out_type=P)",
    "a dict call": "plgpu.kernel(body, **dict(out_shape=O, out_type=P))",
    "a dictionary": "plgpu.kernel(body, **{'out_shape': O, 'out_type': O})",
}


def dedented(text: str) -> str:
    return IMPORTS + textwrap.dedent(text) + "\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(("before", "after"), [*RENAMES.values(), *DROPS.values()], ids=[*RENAMES, *DROPS])
def test_what_is_renamed(before: str, after: str, newline: str) -> None:
    assert fixed(dedented(before), newline) == dedented(after).replace("\n", newline)


@pytest.mark.parametrize("after", [after for _, after in (*RENAMES.values(), *DROPS.values())], ids=[*RENAMES, *DROPS])
def test_once_is_enough(after: str) -> None:
    with pytest.raises(NoFix, match="was traced to"):
        candidate(SourceFile("k.py", dedented(after).encode()))


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_left_alone(text: str) -> None:
    with pytest.raises(NoFix, match=r"no call here .* was traced to JAX"):
        candidate(SourceFile("k.py", dedented(text).encode()))


@pytest.mark.parametrize("text", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_is_left_alone_stays_beside_a_fix(text: str) -> None:
    kept = dedented(text)
    assert fixed(f"{kept}pl.kernel(zzz, mesh=M, out_shape=O)\n") == f"{kept}pl.kernel(zzz, mesh=M, out_type=O)\n"


@pytest.mark.parametrize("text", BOTH_GIVEN.values(), ids=BOTH_GIVEN)
def test_two_answers_are_not_chosen_between(text: str) -> None:
    with pytest.raises(NoFix, match=r"out_shape and out_type|scratch_shapes and scratch_types"):
        candidate(SourceFile("k.py", dedented(text).encode()))


def test_the_title_says_what_and_how_often() -> None:
    assert title("plgpu.kernel(a, out_shape=O)\n" * 3) == "Rename out_shape to out_type (3 call sites)"
    assert title("plgpu.kernel(a, O)") == "Pass out_type by keyword (1 call site)"
    assert title("plgpu.kernel(out_shape=O, out_type=O)") == "Drop out_shape, which repeats out_type (1 call site)"
    assert title("plgpu.kernel(out_shape=O, scratch_shapes=S)\nplgpu.kernel(a, O)") == (
        "Pass out_type by keyword, rename out_shape to out_type (2 call sites), "
        "rename scratch_shapes to scratch_types (1 call site)"
    )


def test_it_is_safe_and_needs_no_numbers() -> None:
    found = candidate(SourceFile("k.py", (IMPORTS + "plgpu.kernel(a, O)").encode()))
    assert found.applicability is Applicability.SAFE
    assert not found.needs_oracle


def test_a_rename_changes_no_more_than_the_name() -> None:
    text = IMPORTS + "plgpu.kernel(\n    body,\n    out_shape=O,  # é\n)\n"
    [edit] = candidate(SourceFile("k.py", text.encode())).edits
    assert (text[edit.start : edit.end], edit.new) == ("out_shape", "out_type")


def test_tabs_and_a_byte_order_mark_stay() -> None:
    data = (IMPORTS + "def f():\n\tif x:\n\t\tplgpu.kernel(\n\t\t\tout_type=O,\n\t\t\tout_shape=O,\n\t\t)").encode(
        "utf-8-sig"
    )
    source = SourceFile("k.py", data)
    assert source.edited(candidate(source).edits).data == data.replace(b"\t\t\tout_shape=O,\n", b"")


@pytest.mark.parametrize("before", GOLDEN, ids=lambda p: p.parent.name)
def test_golden_cases(before: Path) -> None:
    assert fixed(before.read_text(encoding="utf-8")) == before.with_name("after.py").read_text(encoding="utf-8")


def test_there_are_golden_cases() -> None:
    assert len(GOLDEN) >= 10


def test_a_large_file_takes_no_longer_than_parsing_it_a_few_times() -> None:
    kernel = """
@plgpu.kernel(out_shape=O, grid=(4,), grid_names=("x",))
def kernel_{0}(x_ref, o_ref):
    i = lax.axis_index("x")
    x = plgpu.load(x_ref.at[pl.ds(i * 128, 128)])
    if {0} > 3:
        o_ref[pl.ds(i * 128, 128)] = jnp.exp(x) * 2 - (x if FLAG else 3.0)

def call_{0}(x, *args, **kwargs):
    return kernel_{0}(x, *args, **kwargs)
"""
    source = SourceFile("k.py", (IMPORTS + "".join(kernel.format(n) for n in range(1000))).encode())
    _ = source.tree, source.starts
    started = time.process_time()
    ast.parse(source.data)
    parsed = time.process_time()
    assert len(candidate(source).edits) == 1000
    assert time.process_time() - parsed < 6 * (parsed - started)
