"""What names mean in one file: scopes, import aliases, single assignments; over ``ast`` alone, nothing is imported."""

import ast
from collections.abc import Iterator
from typing import TypeAlias

from mgpu_fix.model import Function
from mgpu_fix.source.file import SourceFile

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope: TypeAlias = ast.Module | ast.ClassDef | FunctionNode

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (ast.Module, ast.ClassDef, *_FUNCTIONS)


class Names:
    """Scopes and bindings of a file.

    A name's bindings are the nodes that bind it in its scope: an ``ast.alias`` of an import, the value of a plain
    assignment ``name = value``, a ``def`` or ``class``, or, for everything else (parameters, loops, ``with``,
    augmented assignment, unpacking), the binding node itself.
    """

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.parents: dict[ast.AST, ast.AST] = {}
        self._bindings: dict[ast.AST, dict[str, list[ast.AST]]] = {}
        self._stars: list[str] = []
        self._imported_from: dict[ast.alias, str] = {}
        for parent in ast.walk(source.tree):
            for child in ast.iter_child_nodes(parent):
                self.parents[child] = parent
        for node in ast.walk(source.tree):
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.ImportFrom():
                for a in node.names:
                    module = "." * node.level + (node.module or "")
                    if a.name == "*":
                        self._stars.append(module)
                    else:
                        self._imported_from[a] = f"{module}.{a.name}"
                        self._add(node, a.asname or a.name, a)
            case ast.Import():
                for a in node.names:
                    self._imported_from[a] = a.name if a.asname else a.name.split(".")[0]
                    self._add(node, a.asname or a.name.split(".")[0], a)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._add(node, node.name, node)
            case ast.arg():
                self._add(node, node.arg, node)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                parent = self.parents[node]
                plain = isinstance(parent, ast.Assign) and node in parent.targets
                walrus_or_annotated = isinstance(parent, ast.AnnAssign | ast.NamedExpr) and parent.target is node
                value = getattr(parent, "value", None) if plain or walrus_or_annotated else None
                self._add(node, node.id, value or node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self._add(node, name, node)

    def _add(self, node: ast.AST, name: str, binding: ast.AST) -> None:
        scope = self.scope(node)
        if any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in ast.walk(scope)):
            scope = self.source.tree
        self._bindings.setdefault(scope, {}).setdefault(name, []).append(binding)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents of ``node``, innermost first."""
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which a name at ``node`` is looked up or bound; decorators and defaults belong outside."""
        child = node
        for parent in self.ancestors(node):
            if isinstance(parent, _FUNCTIONS):
                outside = [*getattr(parent, "decorator_list", []), getattr(parent, "returns", None)]
                if isinstance(child, ast.arguments):
                    outside = [child] if not isinstance(node, ast.arg) else []
                if child not in outside:
                    return parent
            elif isinstance(parent, ast.ClassDef) and child not in [*parent.decorator_list, *parent.bases]:
                return parent
            child = parent
        return self.source.tree

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``."""
        return next(n for n in (node, *self.ancestors(node)) if isinstance(n, ast.stmt))

    def bindings(self, name: str, at: ast.AST) -> list[ast.AST]:
        """Everything that binds ``name`` in the scope where a use of it at ``at`` finds it; empty if nothing does."""
        scope: ast.AST = self.scope(at)
        first = True
        while True:
            if (first or not isinstance(scope, ast.ClassDef)) and name in self._bindings.get(scope, {}):
                return self._bindings[scope][name]
            if isinstance(scope, ast.Module):
                return []
            scope, first = self.scope(scope), False

    def binding(self, name: str, at: ast.AST) -> ast.AST | None:
        """The one binding of ``name`` seen at ``at``, or None if there is none or several."""
        found = self.bindings(name, at)
        return found[0] if len(found) == 1 else None

    def resolve(self, node: ast.AST, depth: int = 8) -> str | None:
        """Dotted name that an expression stands for, through imports and plain assignments; None if it is unknown.

        ``plgpu.kernel`` gives ``jax.experimental.pallas.mosaic_gpu.kernel``. Where the bindings of a name disagree,
        as in a ``try``/``except ImportError``, nothing is known.
        """
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value, depth)
            return f"{base}.{node.attr}" if base else None
        if not isinstance(node, ast.Name) or depth == 0:
            return None
        found = self.bindings(node.id, node)
        if not found:
            return f"{self._stars[0]}.{node.id}" if len(self._stars) == 1 else None
        dotted = {
            self._imported_from[b] if isinstance(b, ast.alias) else self.resolve(b, depth - 1) if b is not node else None
            for b in found
        }
        return dotted.pop() if len(dotted) == 1 else None

    def uses(self, name: str, scope: ast.AST) -> list[ast.Name]:
        """Loads of ``name`` anywhere in ``scope`` that find the binding made in ``scope``."""
        return [
            n
            for n in ast.walk(scope)
            if isinstance(n, ast.Name)
            and n.id == name
            and isinstance(n.ctx, ast.Load)
            and self.bindings(name, n) is self._bindings.get(scope, {}).get(name)
        ]


def find_function(source: SourceFile, function: Function) -> FunctionNode | None:
    """The node of a function that a code object named: a ``def`` by first line and name, a lambda by its body's place.

    ``co_firstlineno`` is the line of the first decorator.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Lambda):
            if function.name == "<lambda>":
                start, end = source.bounds(node.body)
                if start <= source.starts[function.line - 1] + function.column - 1 < end:
                    return node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if function.line in (first, node.lineno):
                return node
    return None
