"""The calls that make a scope: ``pl.run_scoped`` itself, what ``functools.partial`` binds of it, ``pl.with_scoped``."""

import ast
from dataclasses import dataclass

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Scope
from mgpu_fix.source import Names

AXES = "collective_axes"


@dataclass(frozen=True)
class Layer:
    """A call that gives some of a scope's arguments. ``kind`` is call, partial or with_scoped; ``base`` is the
    expression for the function of Pallas, None where a call only calls what other layers made."""

    call: ast.Call
    kind: str
    base: ast.expr | None

    def axes(self) -> ast.expr | None:
        """What it gives as ``collective_axes``."""
        return next((k.value for k in self.call.keywords if k.arg == AXES), None)

    @property
    def is_splat(self) -> bool:
        """Whether it gives arguments that are not written out."""
        starred = any(isinstance(a, ast.Starred) for a in self.call.args)
        return starred or any(k.arg is None for k in self.call.keywords)


def layers_of(names: Names, scope: Scope) -> list[Layer]:
    """The calls that make a scope, the one that Python made last first. Raises NoFix."""
    found = [n for n in names.nodes(ast.Call) if names.source.span(n) == scope.span]
    if not found:
        raise NoFix(f"the call of run_scoped at line {scope.span.line} is not found")
    layers = _layers(names, found[0], frozenset())
    if layers is None:
        raise NoFix(f"how the call at line {scope.span.line} comes to pl.run_scoped is not seen in this file")
    return layers


def _pallas(names: Names, callee: ast.expr) -> str:
    """``run_scoped`` or ``with_scoped`` where an expression is that function of Pallas, else nothing."""
    dotted = names.resolve(callee) or ""
    last = dotted.rpartition(".")[2]
    return last if dotted.startswith("jax.") and last in ("run_scoped", "with_scoped") else ""


def _layers(names: Names, call: ast.Call, seen: frozenset[ast.AST]) -> list[Layer] | None:
    kind = _pallas(names, call.func)
    if kind == "run_scoped":
        return [Layer(call, "call", call.func)]
    if kind == "with_scoped":
        return [Layer(call, "with_scoped", call.func)]
    if names.resolve(call.func) == "functools.partial" and call.args:
        inner = _made(names, call.args[0], seen)
        base = call.args[0] if _pallas(names, call.args[0]) else None
        return None if inner is None else [Layer(call, "partial", base), *inner]
    inner = _made(names, call.func, seen)
    if inner is None:
        return None
    # The function that with_scoped made is called with arguments of its own.
    return inner if inner and inner[-1].kind == "with_scoped" else [Layer(call, "call", None), *inner]


def _made(names: Names, callee: ast.expr, seen: frozenset[ast.AST]) -> list[Layer] | None:
    """The layers behind a callee; none where it is ``pl.run_scoped`` itself, None where that is not known."""
    if _pallas(names, callee) == "run_scoped":
        return []
    if isinstance(callee, ast.Name) and callee not in seen:
        bound = names.binding(callee.id, callee)
        if isinstance(bound, ast.FunctionDef):
            made = [d for d in bound.decorator_list if isinstance(d, ast.Call)]
            return _layers(names, made[0], seen | {callee}) if len(bound.decorator_list) == 1 and made else None
        callee = bound if isinstance(bound, ast.expr) else callee
        if isinstance(bound, ast.Name):
            return _made(names, bound, seen | {bound})
    if isinstance(callee, ast.Call) and callee not in seen:
        return _layers(names, callee, seen | {callee})
    return None
