"""A scope for WGMMA accumulators of their own, inside the one for what is shared."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Scope
from mgpu_fix.source import Names
from mgpu_fix.source.flow import own_nodes

from ..arguments import without
from .scope_calls import AXES, Layer


@dataclass(frozen=True)
class Split:
    """The call that allocates and what becomes of it; where it is a decorator, also what becomes of its function."""

    call: ast.Call
    change: Callable[[cst.Call], cst.Call]
    function: ast.FunctionDef | None = None
    decorate: Callable[[cst.FunctionDef], cst.FunctionDef] | None = None


def split(names: Names, layers: Sequence[Layer], scope: Scope) -> Split:
    """How to allocate the accumulators of a scope by themselves. Raises NoFix."""
    line = scope.span.line
    layer = _allocating(layers, line)
    call = layer.call
    bound = {"call": 1, "partial": 1, "with_scoped": 0}[layer.kind]
    accs = [a.kind == "acc" for a in scope.allocations if not a.name]
    places = [i for i, _ in enumerate(call.args)][bound:]
    if len(places) != len(accs):
        raise NoFix(f"which arguments at line {line} are accumulators is not known")
    inner = [place for place, is_acc in zip(places, accs, strict=True) if is_acc]
    named = {a.name for a in scope.allocations if a.kind == "acc" and a.name}
    trailing = inner == places[len(places) - len(inner) :]
    helper = _with_scoped(names, layers, call)
    function = names.parents[call]
    if isinstance(function, ast.FunctionDef) and call in function.decorator_list:
        if layer.kind == "partial" and layer.base:
            return _inside(call, function, named)
        if trailing and helper:
            return _stacked(call, function, helper, inner, named)
    # Up to 0.10.2, what with_scoped makes takes no keywords.
    by_name = any(a.name and a.kind != "acc" for a in scope.allocations)
    if trailing and helper and layer.kind == "call" and not by_name:
        return Split(call, lambda old: _wrapped(old, helper, inner, named))
    if layer.kind != "call" or layer.base is None:
        raise NoFix(f"the accumulators at line {line} cannot be told apart from what is shared; allocate them alone")
    return Split(call, _Nesting(names, layer.base, call, inner, named).change)


def _allocating(layers: Sequence[Layer], line: int) -> Layer:
    giving = [
        layer
        for layer in layers
        if len(layer.call.args) > (layer.kind != "with_scoped") or any(k.arg != AXES for k in layer.call.keywords)
    ]
    if len(giving) != 1 or giving[0].is_splat:
        raise NoFix(f"the allocations at line {line} are not all written out in one call")
    return giving[0]


def _with_scoped(names: Names, layers: Sequence[Layer], place: ast.AST) -> str:
    """What ``pl.with_scoped`` is called at a place, empty if nothing there leads to it."""
    for layer in layers:
        match layer.base:
            case ast.Attribute(value=module) if layer.base:
                return f"{ast.unparse(module)}.with_scoped"
    for name in names.members(names.source.tree):
        use = ast.Name(name, ast.Load())
        if names.home(name, place) is names.source.tree and names.resolve(use) == "jax.experimental.pallas":
            return f"{name}.with_scoped"
    return ""


def _taken(call: cst.Call, inner: Sequence[int], named: set[str]) -> tuple[list[cst.Arg], cst.Call]:
    """The accumulators' arguments, set anew, and the call without them. ``inner`` counts positional arguments."""
    positional = [i for i, arg in enumerate(call.args) if arg.keyword is None]
    gone = {positional[i] for i in inner}
    gone |= {i for i, arg in enumerate(call.args) if arg.keyword and arg.keyword.value in named}
    tight = cst.SimpleWhitespace("")
    taken = [
        call.args[i].with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=tight) for i in sorted(gone)
    ]
    for i in sorted(gone, reverse=True):
        call = without(call, i)
    return taken, call


def _inside(call: ast.Call, function: ast.FunctionDef, named: set[str]) -> Split:
    """The function in another one of the same name, which takes what is shared; both are decorated by ``partial``."""
    arguments = function.args
    plain = [a.arg for a in arguments.args]
    others = (*arguments.posonlyargs, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg, *arguments.defaults)
    if (
        any(others)
        or len(function.decorator_list) > 1
        or not named <= {*plain}
        or not isinstance(call.args[0], ast.expr)
    ):
        raise NoFix(f"the accumulators at line {call.lineno} cannot be told apart from what is shared")
    returns = any(isinstance(n, ast.Return) and n.value for n in own_nodes(function))
    made: list[cst.Decorator] = []

    def take(old: cst.Call) -> cst.Call:
        taken, rest = _taken(old, [], named)
        callee = old.args[0].with_changes(
            comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace("")
        )
        made.append(cst.Decorator(cst.Call(old.func, [callee, *taken])))
        return rest

    def decorate(old: cst.FunctionDef) -> cst.FunctionDef:
        def params(is_inner: bool) -> cst.Parameters:
            mine = [p for p in old.params.params if (p.name.value in named) is is_inner]
            return cst.Parameters([p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in mine])

        inner = cst.FunctionDef(old.name, params(True), old.body, made, returns=old.returns)
        body: list[cst.BaseStatement] = [inner]
        if returns:
            body.append(cst.SimpleStatementLine([cst.Return(old.name)], leading_lines=[cst.EmptyLine(indent=False)]))
        return old.with_changes(params=params(False), body=cst.IndentedBlock(body))

    return Split(call, take, function, decorate)


def _stacked(call: ast.Call, function: ast.FunctionDef, helper: str, inner: Sequence[int], named: set[str]) -> Split:
    """A second decorator, under the one that is ``call``, for the accumulators."""
    made: list[cst.Decorator] = []

    def take(old: cst.Call) -> cst.Call:
        taken, rest = _taken(old, inner, named)
        made.append(cst.Decorator(cst.Call(cst.parse_expression(helper), taken)))
        return rest

    def decorate(old: cst.FunctionDef) -> cst.FunctionDef:
        at = function.decorator_list.index(call) + 1
        return old.with_changes(decorators=[*old.decorators[:at], *made, *old.decorators[at:]])

    return Split(call, take, function, decorate)


def _wrapped(call: cst.Call, helper: str, inner: Sequence[int], named: set[str]) -> cst.Call:
    """``run_scoped(with_scoped(ACC)(body), SMEM)``."""
    taken, rest = _taken(call, inner, named)
    body = rest.args[0]
    made = cst.Call(cst.Call(cst.parse_expression(helper), taken), [cst.Arg(body.value)])
    return rest.with_changes(args=[body.with_changes(value=made), *rest.args[1:]])


class _Nesting:
    """``run_scoped(lambda smem: run_scoped(lambda acc: body(acc, smem), ACC), SMEM)``, for any order of parameters."""

    def __init__(self, names: Names, base: ast.expr, call: ast.Call, inner: Sequence[int], named: set[str]) -> None:
        self.inner, self.named, self.base = inner, named, ast.unparse(base)
        body, *types = call.args
        keywords = [k for k in call.keywords if k.arg != AXES]
        moved = [call.args[i] for i in inner] + [k.value for k in keywords if k.arg in named]
        used = {n.id for e in (base, *moved) for n in ast.walk(e) if isinstance(n, ast.Name)}
        function = names.binding(body.id, body) if isinstance(body, ast.Name) else body
        known: list[str] = []
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            known = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        self.inline = isinstance(body, ast.Lambda)
        if not isinstance(body, ast.Lambda):
            used |= {n.id for n in ast.walk(body) if isinstance(n, ast.Name)}
            known = [
                k if (k := known[i] if i < len(known) else f"ref{i}") not in used else f"{k}_{i}"
                for i in range(len(types))
            ]
        elif body.args.defaults or body.args.kwonlyargs or body.args.vararg or body.args.kwarg:
            raise NoFix(f"the lambda at line {body.lineno} has more than plain parameters")
        keys = [k.arg for k in keywords if k.arg]
        self.params = known if self.inline else [*known, *keys]
        self.arguments = ", ".join([*known, *(f"{key}={key}" for key in keys)])
        inside = {known[i - 1] for i in inner} | named
        if used & {*self.params} or not {*self.params} >= inside:
            raise NoFix(f"a parameter of the run_scoped at line {call.lineno} hides a name that its arguments use")
        self.inside = [p for p in self.params if p in inside]
        self.outside = [p for p in self.params if p not in inside]

    def change(self, old: cst.Call) -> cst.Call:
        """The call with its accumulators in another one."""
        taken, rest = _taken(old, self.inner, self.named)
        code = cst.Module([]).code_for_node
        body = rest.args[0].value
        computed = code(body.body) if isinstance(body, cst.Lambda) else f"{_atom(body)}({self.arguments})"
        types = code(cst.Call(cst.Name("_"), taken)).removeprefix("_(")
        made = f"lambda {', '.join(self.outside)}: {self.base}(lambda {', '.join(self.inside)}: {computed}, {types}"
        first = rest.args[0].with_changes(value=cst.parse_expression(made))
        return rest.with_changes(args=[first, *rest.args[1:]])


def _atom(node: cst.BaseExpression) -> str:
    text = cst.Module([]).code_for_node(node)
    return text if isinstance(node, cst.Name | cst.Attribute | cst.Call) or node.lpar else f"({text})"
