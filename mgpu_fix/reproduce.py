"""A program cut down to what raises one of its errors, for a report to whoever can mend that. Pure over a runner."""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mgpu_fix.model import Failure, Observation
from mgpu_fix.source import SourceFile

#: lowers what it is given the name of, and asks for no GPU
_LOWERED = 'jax.jit({}).trace({}).lower(lowering_platforms=("cuda",))\n'
#: statements that are tried as the one that comes to the error, from the last one on
_TRIED = 12


class NoReproducerError(Exception):
    """There is none; the message says why."""


@dataclass(frozen=True)
class _Part:
    """A statement at the top of a module: its text and lines, the names that it binds and uses, whether it only defines
    some, and its value where that calls something."""

    text: str
    first: int
    last: int
    binds: frozenset[str]
    uses: frozenset[str]
    defines: bool
    call: str = ""


def reproducer(
    source: SourceFile, failure: Failure, run: Callable[[bytes], Observation], examples: Sequence[tuple[str, str]]
) -> str:
    """A script that raises ``failure`` and, as far as that goes, does nothing else.

    ``run`` observes the program with another text in the place of ``source``. ``examples`` are functions in it and
    their arguments, as ``kernel`` and ``*example_args()``, that may come to the error. Raises NoReproducerError.
    """
    if not failure.raised_at:
        raise NoReproducerError("JAX raises nothing there")

    def raises(parts: Sequence[_Part]) -> bool:
        seen = run(_text(parts).encode())
        return any(_same(f, failure) for f in seen.failures)

    parts = list(_parts(source))
    kept = _up_to_the_error(parts, failure, raises, examples)
    if kept is None:
        raise NoReproducerError("no statement at the top of the file leads to it")
    needed = _needed(kept)
    kept = needed if raises(needed) else kept
    for part in reversed([p for p in kept[:-1] if not p.defines]):
        fewer = [p for p in kept if p is not part]
        kept = fewer if raises(fewer) else kept
    said = f"{failure.type}: {failure.message}".splitlines()[0]
    return f"# JAX {failure.jax}, {failure.raised_at}:\n# {said}\n{_text(kept)}"


def _same(a: Failure, b: Failure) -> bool:
    return (a.type, _plain(a.message)) == (b.type, _plain(b.message))


def _plain(message: str) -> str:
    """What stays of a message when lines, files and addresses are others."""
    return re.sub(r"(/[\w.\-]+)+|\d+", "#", message)


def _up_to_the_error(
    parts: list[_Part], failure: Failure, raises: Callable[[Sequence[_Part]], bool], examples: Sequence[tuple[str, str]]
) -> list[_Part] | None:
    """The statements to one that comes to the error, that one so that it asks for no GPU."""
    if failure.stage == "import":
        line = failure.span.line if failure.span else 0
        ends = [i for i, part in enumerate(parts) if part.first <= line <= part.last]
        return next((kept for kept in ([parts[: i + 1] for i in ends] + [parts]) if raises(kept)), None)
    calls = [(i, part.call) for i, part in enumerate(parts) if part.call][::-1][:_TRIED]
    ways = [[*(p for p in parts if p.defines), _lowering(*example)] for example in examples]
    ways += [[*parts[:i], _lowering(f"lambda: {call}", "")] for i, call in calls]
    return next((kept for kept in ways if raises(kept)), None)


def _lowering(name: str, args: str) -> _Part:
    text = _LOWERED.format(name, args)
    return _Part(text, 0, 0, frozenset(), _names(ast.parse(text)), defines=False)


def _needed(parts: Sequence[_Part]) -> list[_Part]:
    """Those parts that the last one needs, and all that do more than to define something."""
    wanted = set(parts[-1].uses)
    kept = [parts[-1]]
    for part in reversed(parts[:-1]):
        if not part.defines or part.binds & wanted:
            kept.append(part)
            wanted |= part.uses
    return kept[::-1]


def _text(parts: Sequence[_Part]) -> str:
    blocks = [f"\n\n{p.text}\n\n" if p.text.startswith(("def ", "class ", "@", "async ")) else p.text for p in parts]
    future = [p for p in blocks if p.startswith("from __future__")]
    own = [] if any("jax" in p.binds for p in parts) else ["import jax\n"]
    text = "".join([*future, *own, *(block for block in blocks if block not in future)])
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _parts(source: SourceFile) -> Iterator[_Part]:
    for node in source.tree.body:
        guard = isinstance(node, ast.If) and "__name__" in source.segment(node.test)
        inner = node.body if guard and isinstance(node, ast.If) else [node]
        for statement in inner:
            if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
                yield _part(source, statement)


def _part(source: SourceFile, node: ast.stmt) -> _Part:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    lines = "".join(source.line(n) for n in range(first, (node.end_lineno or node.lineno) + 1))
    text = textwrap.dedent(lines if lines.endswith("\n") else f"{lines}\n").replace("\r\n", "\n")
    defines = isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
    value = getattr(node, "value", None) if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)) else None
    call = ""
    if value is not None and any(isinstance(n, ast.Call) for n in ast.walk(value)):
        call = f"({source.segment(value)})"
    return _Part(text, first, node.end_lineno or first, _bound(node), _names(node), defines, call)


def _bound(node: ast.stmt) -> frozenset[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return frozenset((a.asname or a.name).partition(".")[0] for a in node.names)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return frozenset([node.name])
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def argument(spec: str) -> str:
    """JAX's short text for a type, e.g. ``f32[128,128]``, as code that makes its aval."""
    kind, _, dims = spec.removesuffix("]").partition("[")
    name = re.sub(r"^(bf|f|s|i|u)(?=\d)", lambda m: _KINDS[m[1]], kind)
    return f'jax.ShapeDtypeStruct(({dims}{"," if dims else ""}), "{name}")'


_KINDS = {"f": "float", "bf": "bfloat", "s": "int", "i": "int", "u": "uint"}
