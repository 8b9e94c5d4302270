"""What names mean in one file: scopes, import aliases, single assignments; over ``ast`` alone, nothing is imported."""

import ast
import functools
import re
from collections.abc import Collection, Iterator
from typing import TypeAlias, TypeVar, cast

from mgpu_fix.model import Function
from mgpu_fix.source.file import SourceFile

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope: TypeAlias = ast.Module | ast.ClassDef | FunctionNode
N = TypeVar("N", bound=ast.AST)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (ast.Module, ast.ClassDef, *_FUNCTIONS)
_BINDERS = (
    *(ast.ImportFrom, ast.Import, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.arg, ast.Name, ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
)
#: Fields whose nodes are shared between all expressions that have them, so that they have no one parent.
_SHARED = ("ctx", "op", "ops")


class Names:
    """Scopes and bindings of a file.

    A name's bindings are the nodes that bind it in its scope: an ``ast.alias`` of an import, the value of a plain
    assignment ``name = value``, a ``def`` or ``class``, or, for everything else (parameters, loops, ``with``,
    augmented assignment, unpacking), the binding node itself. ``parents`` leaves out ``ctx`` and operators.
    """

    def __init__(self, source: SourceFile, wanted: Collection[str] = ()) -> None:
        self.source = source
        #: names of the module that other files import from it
        self.wanted = frozenset(wanted)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._nodes: dict[type[ast.AST], list[ast.AST]] = {}
        self._bindings: dict[ast.AST, dict[str, list[ast.AST]]] = {}
        self._stars: list[str] = []
        self._imported_from: dict[ast.alias, str] = {}
        self._resolved: dict[tuple[ast.AST, str], str | None] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._uses: dict[str, dict[ast.AST | None, list[ast.Name]]] = {}
        self._index()
        for kind in _BINDERS:
            for node in self.nodes(kind):
                self._bind(node)
        for declaration in (*self.nodes(ast.Global), *self.nodes(ast.Nonlocal)):
            self._move(cast(ast.Global | ast.Nonlocal, declaration))

    def _index(self) -> None:
        """Parents and kinds of all nodes, at a fraction of what :func:`ast.walk` costs."""
        todo: list[ast.AST] = [self.source.tree]
        for parent in todo:
            self._nodes.setdefault(type(parent), []).append(parent)
            for name in parent._fields:
                value = getattr(parent, name)
                if name in _SHARED:
                    continue
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        self.parents[child] = parent
                        todo.append(child)

    def nodes(self, kind: type[N]) -> list[N]:
        """Every node of exactly that class, outer ones first."""
        return cast(list[N], self._nodes.get(kind, []))

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
        self._bindings.setdefault(self.scope(node), {}).setdefault(name, []).append(binding)

    def _move(self, declaration: ast.Global | ast.Nonlocal) -> None:
        """Count what is bound under a ``global`` or ``nonlocal`` to the scope that it belongs to."""
        inner = self.scope(declaration)
        for name in declaration.names:
            moved = self._bindings.get(inner, {}).pop(name, [])
            outer = self.source.tree if isinstance(declaration, ast.Global) else self.home(name, inner)
            if moved and outer:
                self._bindings.setdefault(outer, {}).setdefault(name, []).extend(moved)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents of ``node``, innermost first."""
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """The scope in which a name at ``node`` is looked up or bound; decorators and defaults belong outside."""
        if node not in self._scopes:
            self._scopes[node] = self._scope(node)
        return self._scopes[node]

    def _scope(self, node: ast.AST) -> Scope:
        child = node
        while (parent := self.parents.get(child)) is not None:
            if isinstance(parent, _SCOPES) and self._inside(parent, child, node):
                return parent
            child = parent
        return self.source.tree

    @staticmethod
    def _inside(scope: Scope, child: ast.AST, node: ast.AST) -> bool:
        """Whether ``node``, which lies in ``child`` of ``scope``, belongs to that scope and not to the one around."""
        if isinstance(child, ast.arguments):
            return isinstance(node, ast.arg)
        outside = [*getattr(scope, "decorator_list", []), *getattr(scope, "bases", []), *getattr(scope, "keywords", [])]
        return child not in outside and child is not getattr(scope, "returns", None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``."""
        return next(n for n in (node, *self.ancestors(node)) if isinstance(n, ast.stmt))

    def home(self, name: str, at: ast.AST) -> ast.AST | None:
        """The scope in which a use of ``name`` at ``at`` finds it, or None if nothing in the file binds it."""
        scope: ast.AST = self.scope(at)
        first = True
        while True:
            if (first or not isinstance(scope, ast.ClassDef)) and name in self._bindings.get(scope, {}):
                return scope
            if isinstance(scope, ast.Module):
                return None
            scope, first = self.scope(scope), False

    def members(self, scope: ast.AST) -> dict[str, list[ast.AST]]:
        """What ``scope`` itself binds, by name."""
        return self._bindings.get(scope, {})

    def bindings(self, name: str, at: ast.AST) -> list[ast.AST]:
        """Everything that binds ``name`` in the scope where a use of it at ``at`` finds it; empty if nothing does."""
        home = self.home(name, at)
        return self._bindings[home][name] if home else []

    def binding(self, name: str, at: ast.AST) -> ast.AST | None:
        """The one binding of ``name`` seen at ``at``, or None if there is none or several."""
        found = self.bindings(name, at)
        return found[0] if len(found) == 1 else None

    def resolve(self, node: ast.AST) -> str | None:
        """Dotted name that an expression stands for, through imports and plain assignments; None if it is unknown.

        ``plgpu.kernel`` gives ``jax.experimental.pallas.mosaic_gpu.kernel``. Where the bindings of a name disagree
        nothing is known; one to None, as after ``except ImportError``, does not count.
        """
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value)
            return f"{base}.{node.attr}" if base else None
        if not isinstance(node, ast.Name):
            return None
        home = self.home(node.id, node)
        if home is None:
            return f"{self._stars[0]}.{node.id}" if len(self._stars) == 1 else None
        key = home, node.id
        if key not in self._resolved:
            self._resolved[key] = None  # what is defined by itself is unknown
            dotted = {
                self._imported_from[b] if isinstance(b, ast.alias) else self.resolve(b)
                for b in self._bindings[home][node.id]
                if not (isinstance(b, ast.Constant) and b.value is None)
            }
            self._resolved[key] = dotted.pop() if len(dotted) == 1 else None
        return self._resolved[key]

    def imported(self, alias: ast.alias) -> str:
        """Dotted name of what an import binds."""
        return self._imported_from.get(alias, "")

    def uses(self, name: str, scope: ast.AST) -> list[ast.Name]:
        """Loads of ``name`` anywhere in ``scope`` that find the binding made in ``scope``."""
        if name not in self._uses:
            self._uses[name] = {}
            for load in self._loads.get(name, []):
                self._uses[name].setdefault(self.home(name, load), []).append(load)
        return self._uses[name].get(scope, [])

    def attributes(self, name: str) -> list[ast.Attribute]:
        """Every ``something.name``."""
        return self._attributes.get(name, [])

    @functools.cached_property
    def _attributes(self) -> dict[str, list[ast.Attribute]]:
        found: dict[str, list[ast.Attribute]] = {}
        for node in self.nodes(ast.Attribute):
            found.setdefault(node.attr, []).append(node)
        return found

    def loads(self, name: str) -> list[ast.Name]:
        """Every place that loads ``name``, whatever it is bound to there."""
        return self._loads.get(name, [])

    @functools.cached_property
    def _loads(self) -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        for node in self.nodes(ast.Name):
            if isinstance(node.ctx, ast.Load):
                found.setdefault(node.id, []).append(node)
        return found


def find_function(source: SourceFile, function: Function) -> FunctionNode | None:
    """The node of a function that a code object named: a ``def`` by first line and name, a lambda by its body's place.

    ``co_firstlineno`` is the line of the first decorator.
    """
    innermost = None
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Lambda):
            if function.name == "<lambda>":
                start, end = source.bounds(node.body)
                if start <= source.starts[function.line - 1] + function.column - 1 < end:
                    innermost = node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if function.line in (first, node.lineno):
                return node
    return innermost


def bare_name(parameter: str) -> str:
    """What a parameter's name says, without the habits of kernels: ``sum`` for ``sum_ref`` and ``out_sum``."""
    return re.sub(r"^out_|(_ref|_gmem|_smem|_out)+$", "", parameter)
