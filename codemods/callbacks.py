"""Functions that a loop, a pipeline or a mesh of Pallas' runs: arguments, what is decorated, what results are given."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgpu_fix.catalogue import NoFix
from mgpu_fix.source import Names
from mgpu_fix.source.names import FunctionNode

from .callees import positional, public


@dataclass(frozen=True)
class Callback:
    """A function and how many of its positional parameters ``functools.partial`` took."""

    function: FunctionNode
    bound: int = 0

    @property
    def parameters(self) -> list[ast.arg]:
        """The positional parameters that are left."""
        return positional(self.function)[self.bound :]


def given(names: Names, value: ast.expr) -> Callback:
    """The function that an expression stands for. Raises NoFix where it is not one of this file."""
    match value:
        case ast.Lambda():
            return Callback(value)
        case ast.Name(id=name) if isinstance(found := names.binding(name, value), FunctionNode):
            return Callback(found)
        case ast.Name(id=name) if isinstance(found := names.binding(name, value), ast.Call):
            return given(names, found)
        case ast.Call(func=func, args=[inner, *rest], keywords=keywords) if names.resolve(
            func
        ) == "functools.partial" and not any(isinstance(a, ast.Starred) for a in rest):
            callback = given(names, inner)
            taken = {keyword.arg for keyword in keywords}
            if any(p.arg in taken for p in callback.parameters[: len(rest) + 1]):
                raise NoFix(f"what is bound at line {value.lineno} may be what changes")
            return Callback(callback.function, callback.bound + len(rest))
    raise NoFix(f"the function at line {value.lineno} is not defined in this file")


def applied(names: Names, maker: ast.Call) -> Iterator[Callback]:
    """The functions that ``maker``, which returns a decorator, is applied to. Raises NoFix where one is not known."""
    parent = names.parents[maker]
    match parent:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if maker in parent.decorator_list:
            if parent.decorator_list[-1] is not maker:
                raise NoFix(f"`{parent.name}` has another decorator at line {parent.decorator_list[-1].lineno}")
            yield Callback(parent)
        case ast.Call(func=func, args=[function]) if func is maker:
            yield given(names, function)
        case ast.Assign(targets=[ast.Name() as target]):
            for use in names.uses(target.id, names.home(target.id, target) or target):
                outer = names.parents[use]
                if isinstance(outer, ast.FunctionDef) and use in outer.decorator_list[-1:]:
                    yield Callback(outer)
                elif isinstance(outer, ast.Call) and outer.func is use and len(outer.args) == 1:
                    yield given(names, outer.args[0])
                else:
                    raise NoFix(f"`{target.id}` is used at line {use.lineno} in another way")
        case _:
            raise NoFix(f"what the call at line {maker.lineno} runs is not written beside it")


def only_called_by(names: Names, callback: Callback, users: list[ast.expr]) -> None:
    """Raises NoFix where a function is used elsewhere than in ``users``, which all change with it."""
    function = callback.function
    if isinstance(function, ast.Lambda):
        return
    for use in names.uses(function.name, names.scope(function)):
        if not any(_is_given(names, use, user) for user in users):
            raise NoFix(f"`{function.name}` is also used at line {use.lineno}")


def _is_given(names: Names, use: ast.expr, user: ast.expr) -> bool:
    """Whether ``use`` is an argument of the call ``user``, by itself, bound by ``functools.partial``, or by a name."""
    node: ast.AST = use
    while node is not user:
        parent = names.parents[node]
        match parent:
            case ast.Call() if parent is user or (
                parent.args[:1] == [node] and names.resolve(parent.func) == "functools.partial"
            ):
                node = parent
            case ast.Assign(targets=[ast.Name() as target]):
                uses = names.uses(target.id, names.home(target.id, target) or parent)
                return bool(uses) and all(_is_given(names, later, user) for later in uses)
            case _:
                return False
    return True


#: Functions that run something over a mesh.
_MAPPING = frozenset({"jax.experimental.pallas.core_map", "jax.experimental.pallas.kernel"})


def mapped(names: Names, mesh: ast.Call) -> list[ast.Call]:
    """The calls that run something over a mesh. Raises NoFix where it goes elsewhere, too."""
    parent = names.parents[mesh]
    uses: Sequence[ast.expr] = [mesh]
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0]
        uses = names.uses(name.id, names.home(name.id, name) or name)
    found = []
    for use in uses:
        call = names.parents[use]
        call = names.parents[call] if isinstance(call, ast.keyword) else call
        if not isinstance(call, ast.Call) or public(names.resolve(call.func)) not in _MAPPING:
            raise NoFix(f"the mesh at line {mesh.lineno} is used at line {use.lineno}, which runs no kernel over it")
        found.append(call)
    return found
