"""MGF301: which axes a scope gets, how they are written, and what is left alone. Nothing here imports JAX."""

import ast
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from mgpu_fix import catalogue
from mgpu_fix.catalogue import NoFix
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Allocation, Axis, Candidate, Facts, Failure, Scope, Span, from_json, to_json
from mgpu_fix.source import SourceFile

PATH = "kernel.py"
HEAD = """\
import functools
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

"""
WG = Axis("wg", 2)
SMEM = Allocation("", "smem")
ACC = Allocation("", "acc")


@dataclass(frozen=True)
class At:
    """A :class:`Scope` whose call is the one whose text starts so, number ``nth`` of them."""

    text: str = "pl.run_scoped("
    axes: Sequence[Axis] = (Axis("g", 1),)
    allocations: Sequence[Allocation] = (SMEM,)
    thread: Axis | None = WG
    nth: int = 0
    accepted: bool = False
    diverges: bool | None = False
    others: tuple[str, ...] = ()

    def scope(self, source: SourceFile) -> Scope:
        calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call)]
        found = [c for c in calls if source.segment(c).startswith(self.text)]
        span = source.span(sorted(found, key=lambda c: (c.lineno, c.col_offset))[self.nth])
        return Scope(
            span, tuple(self.axes), tuple(self.allocations), self.thread, self.accepted, self.diverges, self.others
        )


def candidates(source: SourceFile, *scopes: At, path: str = PATH) -> list[Candidate]:
    rule = catalogue.load().find("MGF301")
    assert rule is not None
    known = tuple(replace(s, span=replace(s.span, path=path)) for s in (at.scope(source) for at in scopes))
    message = "Only thread-collective allocations are supported in run_scoped."
    return list(
        rule.candidates(Failure("ValueError", message, "lower", kernel="kernel", facts=Facts(scopes=known)), source)
    )


def file(text: str) -> SourceFile:
    return SourceFile(PATH, (HEAD + textwrap.dedent(text).lstrip("\n")).encode())


#: name: (before, scopes, after); what stands for the file's head is left out
FIXED: dict[str, tuple[str, list[At], str]] = {
    "another axis": (
        'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")\n',
        [At()],
        'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="wg")\n',
    ),
    "no axes": (
        "pl.run_scoped(body, plgpu.SMEM((8,)))\n",
        [At(axes=())],
        'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="wg")\n',
    ),
    "a list": (
        "pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=['wg'])\n",
        [At(axes=(WG,))],
        "pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes='wg')\n",
    ),
    "a tuple of one": (
        'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=("g",))\n',
        [At()],
        'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=("wg",))\n',
    ),
    "the author's name of it in a tuple": (
        'A = "wg"\npl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=(CLUSTER, A))\n',
        [At(axes=(Axis("c", 1), WG))],
        'A = "wg"\npl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=A)\n',
    ),
    "a computed value": (
        "pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes_of(mesh)[1:])\n",
        [At()],
        'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="wg")\n',
    ),
    "no thread axis": (
        'pl.run_scoped(body, collective_axes="g", smem=plgpu.SMEM((8,)))\n',
        [At(thread=None)],
        "pl.run_scoped(body, smem=plgpu.SMEM((8,)))\n",
    ),
    "no thread axis, over lines": (
        """
        pl.run_scoped(
          body,
          plgpu.SMEM((8,)),  # one row
          # shared
          collective_axes="g",  # over the grid
        )
        """,
        [At(thread=None)],
        """
        pl.run_scoped(
          body,
          plgpu.SMEM((8,)),  # one row
          # shared
          # over the grid
        )
        """,
    ),
    "no axes, over lines": (
        """
        pl.run_scoped(
            body,
            # a row
            plgpu.SMEM((8,)),  # of eight
        )
        pl.run_scoped(body,
                      plgpu.SMEM((8,))  # of eight
                      )
        pl.run_scoped(
            body, **allocations
        )
        """,
        [At(axes=()), At(axes=(), nth=1), At(axes=(), nth=2, allocations=[Allocation("smem", "smem")])],
        """
        pl.run_scoped(
            body,
            # a row
            plgpu.SMEM((8,)),  # of eight
            collective_axes="wg",
        )
        pl.run_scoped(body,
                      plgpu.SMEM((8,)),  # of eight
                      collective_axes="wg"
                      )
        pl.run_scoped(
            body, **allocations, collective_axes="wg"
        )
        """,
    ),
    "the variable of the kernel's declaration": (
        """
        WG = 'wg'

        @functools.partial(plgpu.kernel, thread_name=WG)
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")
        """,
        [At()],
        """
        WG = 'wg'

        @functools.partial(plgpu.kernel, thread_name=WG)
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=WG)
        """,
    ),
    "a variable that is not seen": (
        """
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")

        def make(kernel):
            WG = 'wg'
            return plgpu.kernel(kernel, thread_name=WG)
        """,
        [At()],
        """
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes='wg')

        def make(kernel):
            WG = 'wg'
            return plgpu.kernel(kernel, thread_name=WG)
        """,
    ),
    "a variable that is hidden": (
        """
        W = "wg"

        @plgpu.kernel(thread_name=W)
        def kernel(x_ref, o_ref):
            W = 3
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")
        """,
        [At()],
        """
        W = "wg"

        @plgpu.kernel(thread_name=W)
        def kernel(x_ref, o_ref):
            W = 3
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="wg")
        """,
    ),
    "the variable of a mesh": (
        """
        NAME = "wg"
        MESH = plgpu.Mesh(num_threads=2, thread_name=NAME)

        @pl.kernel(out_type=OUT, mesh=MESH)
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")
        """,
        [At()],
        """
        NAME = "wg"
        MESH = plgpu.Mesh(num_threads=2, thread_name=NAME)

        @pl.kernel(out_type=OUT, mesh=MESH)
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=NAME)
        """,
    ),
    "a name that is no variable": (
        """
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")
        """,
        [At(thread=Axis('w"g', 2))],
        """
        def kernel(x_ref, o_ref):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes='w"g')
        """,
    ),
    "functools.partial, called at once": (
        'functools.partial(pl.run_scoped, collective_axes="g")(body, plgpu.SMEM((8,)))\n',
        [At('functools.partial(pl.run_scoped, collective_axes="g")(')],
        'functools.partial(pl.run_scoped, collective_axes="wg")(body, plgpu.SMEM((8,)))\n',
    ),
    "functools.partial with a name, that serves nothing else": (
        'scope = functools.partial(pl.run_scoped, collective_axes="g")\nscope(body, plgpu.SMEM((8,)))\n',
        [At("scope(")],
        'scope = functools.partial(pl.run_scoped, collective_axes="wg")\nscope(body, plgpu.SMEM((8,)))\n',
    ),
    "functools.partial with a name, that serves others": (
        """
        scope = functools.partial(pl.run_scoped, collective_axes="g")
        scope(body, plgpu.SMEM((8,)))
        other(scope)
        """,
        [At("scope(")],
        """
        scope = functools.partial(pl.run_scoped, collective_axes="g")
        scope(body, plgpu.SMEM((8,)), collective_axes="wg")
        other(scope)
        """,
    ),
    "functools.partial of functools.partial": (
        """
        base = functools.partial(pl.run_scoped, smem=plgpu.SMEM((8,)))
        scope = functools.partial(base, collective_axes="g")
        scope(body)
        """,
        [At("scope(", allocations=[Allocation("smem", "smem")])],
        """
        base = functools.partial(pl.run_scoped, smem=plgpu.SMEM((8,)))
        scope = functools.partial(base, collective_axes="wg")
        scope(body)
        """,
    ),
    "another name for it": (
        """
        from jax.experimental.pallas import run_scoped as rs
        also = rs
        also(body, plgpu.SMEM((8,)), collective_axes="g")
        """,
        [At("also(")],
        """
        from jax.experimental.pallas import run_scoped as rs
        also = rs
        also(body, plgpu.SMEM((8,)), collective_axes="wg")
        """,
    ),
    "nothing else of that name": (
        """
        @plgpu.nd_loop((4,), collective_axes="g")
        def _(info):
            plgpu.copy_gmem_to_smem(x, s, b, collective_axes="g")
            pl.run_scoped(body, plgpu.ClusterBarrier(collective_axes=("g",)), collective_axes="g")
        """,
        [At()],
        """
        @plgpu.nd_loop((4,), collective_axes="g")
        def _(info):
            plgpu.copy_gmem_to_smem(x, s, b, collective_axes="g")
            pl.run_scoped(body, plgpu.ClusterBarrier(collective_axes=("g",)), collective_axes="wg")
        """,
    ),
    "pl.with_scoped": (
        """
        @pl.with_scoped(plgpu.SMEM((8,)), collective_axes="g")
        def scoped(x, smem):
            pass
        scoped(x)
        """,
        [At("scoped(")],
        """
        @pl.with_scoped(plgpu.SMEM((8,)), collective_axes="wg")
        def scoped(x, smem):
            pass
        scoped(x)
        """,
    ),
    "the only caller's argument": (
        """
        def helper(x, axes):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes)
        helper(x, ("g", "wg"))
        """,
        [At(axes=(Axis("g", 1), WG))],
        """
        def helper(x, axes):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes)
        helper(x, "wg")
        """,
    ),
    "a default": (
        """
        def helper(x, *, axes="g"):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes)
        helper(x)
        """,
        [At()],
        """
        def helper(x, *, axes="wg"):
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes)
        helper(x)
        """,
    ),
    "kernels of a factory, each with its own axis": (
        """
        def make(thread):
            @functools.partial(plgpu.kernel, thread_name=thread)
            def kernel(x_ref, o_ref):
                pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=("g", "wg"))
        """,
        [At(axes=(Axis("g", 1), WG), others=("b",))],
        """
        def make(thread):
            @functools.partial(plgpu.kernel, thread_name=thread)
            def kernel(x_ref, o_ref):
                pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=thread)
        """,
    ),
    "two on one line": (
        'pl.run_scoped(a, smem, collective_axes="g"); pl.run_scoped(b, smem)\n',
        [At(), At(nth=1, axes=())],
        'pl.run_scoped(a, smem, collective_axes="wg"); pl.run_scoped(b, smem, collective_axes="wg")\n',
    ),
    "accumulators alone": (
        'x = pl.run_scoped(body, plgpu.ACC((8,)), collective_axes=("wg",)) + 1\n',
        [At(axes=(WG,), allocations=[ACC])],
        "x = pl.run_scoped(body, plgpu.ACC((8,))) + 1\n",
    ),
    "accumulators last": (
        'pl.run_scoped(body, plgpu.SMEM((8,)), plgpu.ACC((8,)), collective_axes="wg")\n',
        [At(axes=(WG,), allocations=[SMEM, ACC])],
        """
        pl.run_scoped(
            pl.with_scoped(plgpu.ACC((8,)))(body),
            plgpu.SMEM((8,)),
            collective_axes="wg",
        )
        """,
    ),
    "accumulators first, without axes": (
        """
        def body(acc, smem):
            pass
        pl.run_scoped(body, plgpu.ACC((8,)), plgpu.SMEM((8,)))
        """,
        [At(axes=(), allocations=[ACC, SMEM])],
        """
        def body(acc, smem):
            pass
        pl.run_scoped(
            lambda smem: pl.run_scoped(lambda acc: body(acc, smem), plgpu.ACC((8,))),
            plgpu.SMEM((8,)),
            collective_axes="wg",
        )
        """,
    ),
    "accumulators among others, a body that is not seen": (
        """
        pl.run_scoped(
            self.body,
            plgpu.SMEM((8,)),
            plgpu.ACC((8,)),
            barrier=plgpu.Barrier(),
            collective_axes="wg",
        )
        """,
        [At(axes=(WG,), allocations=[SMEM, ACC, Allocation("barrier", "barrier")])],
        """
        pl.run_scoped(
            lambda ref0, barrier: pl.run_scoped(lambda ref1: self.body(ref0, ref1, barrier=barrier), plgpu.ACC((8,))),
            plgpu.SMEM((8,)),
            barrier=plgpu.Barrier(),
            collective_axes="wg",
        )
        """,
    ),
    "a lambda that takes an accumulator, in a file with long lines": (
        f"""
        # {118 * "-"}
        W = "wg"
        y = pl.run_scoped(lambda a, s: f(a, s), plgpu.ACC((8,)), plgpu.SMEM(8), collective_axes=W)
        """,
        [At(axes=(WG,), allocations=[ACC, SMEM])],
        f"""
        # {118 * "-"}
        W = "wg"
        y = pl.run_scoped(lambda s: pl.run_scoped(lambda a: f(a, s), plgpu.ACC((8,))), plgpu.SMEM(8), collective_axes=W)
        """,
    ),
    "a decorator that takes an accumulator by name": (
        """
        @functools.partial(pl.run_scoped, smem=plgpu.SMEM((8,)), acc=plgpu.ACC((8,)), collective_axes="wg")
        def total(acc, smem):  # sums
          \"\"\"Sums.\"\"\"
          if smem:
            return 0
          return acc
        """,
        [At("functools", axes=(WG,), allocations=[Allocation("smem", "smem"), Allocation("acc", "acc")])],
        """
        @functools.partial(pl.run_scoped, smem=plgpu.SMEM((8,)), collective_axes="wg")
        def total(smem):
          @functools.partial(pl.run_scoped, acc=plgpu.ACC((8,)))
          def total(acc):  # sums
            \"\"\"Sums.\"\"\"
            if smem:
              return 0
            return acc

          return total
        """,
    ),
    "pl.with_scoped with accumulators": (
        """
        @pl.with_scoped(plgpu.SMEM((8,)), plgpu.ACC((8,)), collective_axes="wg")
        def scoped(x, smem, acc):
            pass
        scoped(x)
        """,
        [At("scoped(", axes=(WG,), allocations=[SMEM, ACC])],
        """
        @pl.with_scoped(plgpu.SMEM((8,)), collective_axes="wg")
        @pl.with_scoped(plgpu.ACC((8,)))
        def scoped(x, smem, acc):
            pass
        scoped(x)
        """,
    ),
    "no thread axis: accumulators need no scope of their own": (
        'pl.run_scoped(body, plgpu.ACC((8,)), plgpu.SMEM((8,)), collective_axes="g")\n',
        [At(thread=None, allocations=[ACC, SMEM])],
        "pl.run_scoped(body, plgpu.ACC((8,)), plgpu.SMEM((8,)))\n",
    ),
}


@pytest.mark.parametrize(("before", "scopes", "after"), FIXED.values(), ids=FIXED)
def test_the_only_candidate(before: str, scopes: list[At], after: str) -> None:
    source = file(before)
    [candidate] = candidates(source, *scopes)
    fixed = source.edited(candidate.edits)
    assert fixed.text == file(after).text
    assert not source.comments - fixed.comments
    assert candidate.applicability is Applicability.SAFE
    crlf = SourceFile(PATH, source.data.replace(b"\n", b"\r\n"))
    [twin] = candidates(crlf, *scopes)
    assert crlf.edited(twin.edits).data == fixed.data.replace(b"\n", b"\r\n")


ONE = 'pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes="g")\n'
CONFINED = Allocation("", "smem", confined=True)

#: name: (scope, whether only numbers can tell)
SAFETY: dict[str, tuple[At, bool]] = {
    "an axis of size 1 goes": (At(axes=(Axis("c", 1), WG)), False),
    "an axis of size 2 goes": (At(axes=(Axis("c", 2), WG)), True),
    "an axis of size 2 goes from a kernel with one thread": (At(axes=(Axis("g", 2),), thread=None), True),
    "a name that is no axis goes": (At(axes=(Axis("gw", 0),), thread=None), False),
    "the thread axis comes": (At(), True),
    "the thread axis comes, one warpgroup uses the memory": (At(allocations=[CONFINED]), False),
    "the thread axis comes, one warpgroup uses a part of it": (At(allocations=[CONFINED, SMEM]), True),
    "the thread axis comes, of one thread": (At(thread=Axis("wg", 1)), False),
    "accumulators only": (At(axes=(Axis("g", 4),), allocations=[ACC]), False),
}


@pytest.mark.parametrize(("at", "needs_oracle"), SAFETY.values(), ids=SAFETY)
def test_sharing_with_others_than_before_needs_numbers(at: At, needs_oracle: bool) -> None:
    [candidate] = candidates(file(ONE), at)
    assert (candidate.applicability, candidate.needs_oracle) == (Applicability.SAFE, needs_oracle)


def test_where_it_is_not_known_who_enters_the_fix_is_unsafe() -> None:
    [candidate] = candidates(file(ONE), At(diverges=None))
    assert candidate.applicability is Applicability.UNSAFE
    [candidate] = candidates(file(ONE), At(diverges=None, thread=None))
    assert candidate.applicability is Applicability.SAFE


#: name: (text, scopes, words of the reason)
LEFT: dict[str, tuple[str, list[At], str]] = {
    "not all warpgroups come by": (ONE, [At(diverges=True)], "not all warpgroups reach"),
    "another kernel's axis": (ONE, [At(others=("b",))], "different thread axes: `wg` and `b`"),
    "another kernel has none": (ONE, [At(others=("",))], "different thread axes: `wg` and none"),
    "a constant that two kernels share": (
        'WG = "wg"\n@plgpu.kernel(thread_name=WG)\ndef kernel(x, o):\n    ' + ONE,
        [At(others=("b",))],
        "different thread axes",
    ),
    "a semaphore for several blocks": (
        ONE,
        [At(axes=(Axis("g", 4),), allocations=[Allocation("", "semaphore")])],
        "get_global",
    ),
    "axes out of a dictionary": ("pl.run_scoped(body, plgpu.SMEM((8,)), **options)\n", [At()], "dictionary"),
    "a parameter of unknown callers": (
        "def helper(axes):\n    pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes)\nhelper(*given)\n",
        [At()],
        "parameter `axes`",
    ),
    "a parameter that is read elsewhere": (
        """
        def helper(axes):
            use(axes)
            pl.run_scoped(body, plgpu.SMEM((8,)), collective_axes=axes)
        helper("g")
        """,
        [At()],
        "parameter `axes`",
    ),
    "a function that is not Pallas'": ("run_scoped(body, 1)\n", [At("run_scoped(")], "not seen in this file"),
    "a body with a star": (
        "pl.run_scoped(body, *types, collective_axes='wg')\n",
        [At(axes=(WG,), allocations=[ACC, SMEM])],
        "not all written out",
    ),
    "an accumulator first in pl.with_scoped": (
        """
        @pl.with_scoped(plgpu.ACC((8,)), plgpu.SMEM((8,)), collective_axes="wg")
        def scoped(a, s):
            pass
        scoped()
        """,
        [At("scoped(", axes=(WG,), allocations=[ACC, SMEM])],
        "cannot be told apart",
    ),
    "a pytree with an accumulator in it": (ONE, [At(allocations=[Allocation("", "acc+smem")])], "a pytree"),
    "a thread axis that is no text": (ONE, [At(thread=Axis("<0>", 2))], "is no text"),
    "nothing known": (ONE, [], "not known"),
    "nothing refused": (ONE, [At(accepted=True)], "not known"),
}


@pytest.mark.parametrize(("text", "scopes", "reason"), LEFT.values(), ids=LEFT)
def test_left_with_a_reason(text: str, scopes: list[At], reason: str) -> None:
    with pytest.raises(NoFix, match=reason):
        candidates(file(text), *scopes)


def test_a_scope_in_another_file_is_left() -> None:
    with pytest.raises(NoFix, match=r"scope in other\.py"):
        candidates(file(ONE), At(), path="other.py")


def test_a_call_that_moved_is_left() -> None:
    source = file(ONE)
    moved = replace(At().scope(source), span=Span(PATH, 99, 1, 99, 5))
    rule = catalogue.load().find("MGF301")
    assert rule is not None
    with pytest.raises(NoFix, match="is not found"):
        list(rule.candidates(Failure("ValueError", "", "lower", facts=Facts(scopes=(moved,))), source))


def test_scopes_survive_json() -> None:
    scope = At(others=("b", ""), diverges=None, allocations=[CONFINED, ACC]).scope(file(ONE))
    failure = Failure("ValueError", "", "lower", facts=Facts(scopes=(scope, replace(scope, thread=None))))
    assert from_json(Failure, json.loads(json.dumps(to_json(failure)))) == failure
