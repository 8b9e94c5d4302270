"""How control runs through a function, and what evaluating an expression can do; over ``ast`` alone."""

import ast
from collections.abc import Collection, Iterator

from mgpu_fix.source.names import FunctionNode, Names

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_TRIES = (ast.Try, ast.TryStar)

#: Libraries whose functions only compute, but for the names after them, which run functions they are given.
_PURE_LIBRARIES = ("jax.numpy.", "jax.lax.", "jax.nn.", "numpy.")
_SLICES = frozenset(f"jax.experimental.pallas.{name}" for name in ("ds", "dslice"))
_CALLS_BACK = frozenset({"associative_scan", "cond", "fori_loop", "map", "reduce", "scan", "switch", "while_loop"})
#: Functions that ask for no more than the shape and type of what they are given.
_DESCRIBES = frozenset(f"jax.numpy.{name}" for name in ("empty_like", "ones_like", "shape", "zeros_like"))
_PURE_METHODS = frozenset(
    {"all", "any", "argmax", "argmin", "astype", "max", "mean", "min", "prod", "reshape", "squeeze", "sum", "transpose"}
)
_PURE_BUILTINS = frozenset({"abs", "bool", "dict", "float", "int", "len", "list", "range", "round", "tuple"})


def own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    """Every node of a function's body that belongs to no function or class defined in it."""
    todo: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    for node in todo:
        yield node
        if not isinstance(node, _NESTED):
            todo += ast.iter_child_nodes(node)


def block(names: Names, statement: ast.stmt) -> list[ast.stmt]:
    """The statements among which ``statement`` stands."""
    fields = ast.iter_fields(names.parents[statement])
    return next(value for _, value in fields if isinstance(value, list) and statement in value)


def ends_function(names: Names, statement: ast.stmt) -> bool:
    """Whether the function is over once ``statement`` has run, whatever comes to pass after it."""
    parent = names.parents[statement]
    around = block(names, statement)
    if around[-1] is not statement:
        return False
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    if isinstance(parent, _LOOPS) and around is not parent.orelse:
        return False
    # A ``return`` in ``finally`` also drops the exception under way.
    if isinstance(parent, _TRIES) and (around is parent.finalbody or (around is parent.body and parent.orelse)):
        return False
    return ends_function(names, names.statement(parent))


def is_pure(names: Names, expression: ast.AST) -> bool:
    """Whether evaluating ``expression`` surely does nothing but give its value."""
    return all(_is_pure_node(names, node) for node in ast.walk(expression))


def _is_pure_node(names: Names, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return not isinstance(node, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await)
    dotted = names.resolve(node.func)
    if dotted and dotted.startswith(_PURE_LIBRARIES):
        return dotted.rpartition(".")[2] not in _CALLS_BACK
    if dotted in _SLICES:
        return True
    if isinstance(node.func, ast.Name):
        return node.func.id in _PURE_BUILTINS and not names.bindings(node.func.id, node)
    return dotted is None and isinstance(node.func, ast.Attribute) and node.func.attr in _PURE_METHODS


def is_array(names: Names, call: ast.Call) -> bool:
    """Whether a call surely gives an array: one of a library's own functions that only compute."""
    dotted = names.resolve(call.func) or ""
    return dotted.startswith(_PURE_LIBRARIES) and dotted.rpartition(".")[2] not in _CALLS_BACK


def gives_nothing(names: Names, value: ast.expr) -> bool:
    """Whether a value is None, or that of a call of a plain function of the file that returns nothing else."""
    if isinstance(value, ast.Constant):
        return value.value is None
    called = value.func if isinstance(value, ast.Call) else None
    function = names.binding(called.id, called) if isinstance(called, ast.Name) else None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    inside = [*own_nodes(function)]
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside):
        return False
    given = (node.value for node in inside if isinstance(node, ast.Return) and node.value)
    return all(isinstance(g, ast.Constant) and g.value is None for g in given)


def may_write(names: Names, function: FunctionNode, parameter: str, but: Collection[ast.AST] = ()) -> bool:
    """Whether ``function``, or one inside it, may store into the Ref that it calls ``parameter``, elsewhere than in
    the nodes ``but``.

    True unless the name is bound once and every use of it is a plain load, ``p[...]``, or asks for its shape or type,
    as ``jnp.zeros_like(p)`` does: a store, ``.at``, another name for it and any other call that it is given to may all
    write. The name may also be one that ``*refs`` is unpacked to; then no other use of ``refs`` may write either.
    """
    bound = names.members(function).get(parameter, [])
    uses, vararg = names.uses(parameter, function), function.args.vararg
    if vararg and any(not isinstance(b, ast.arg) for b in bound):
        uses = [*uses, *(use for use in names.uses(vararg.arg, function) if not _is_unpacked(names, use))]
    counted = (use for use in uses if not but or not any(node in but for node in names.ancestors(use)))
    return len(bound) > 1 or not all(_only_loads(names, use) for use in counted)


def _is_unpacked(names: Names, use: ast.Name) -> bool:
    match names.parents[use]:
        case ast.Assign(targets=[ast.Tuple(elts=elements) | ast.List(elts=elements)]):
            return all(isinstance(e, ast.Name) for e in elements)
    return False


def _only_loads(names: Names, ref: ast.expr) -> bool:
    """Whether a Ref, or a pytree of such, is only read where ``ref`` stands."""
    match names.parents[ref]:
        case ast.Subscript(ctx=ast.Load(), slice=index) as part if part.value is ref:
            # ``out[0]`` and ``out["sum"]`` may be Refs in turn, ``out[...]`` is an array.
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            whole = len(parts) > 1 or any(isinstance(p, ast.Constant) and p.value is ... for p in parts)
            return whole or _only_loads(names, part)
        case ast.Attribute(attr="shape" | "dtype" | "ndim" | "size", ctx=ast.Load()):
            return True
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return True
        case ast.Call(func=function, args=[first, *_]) if first is ref:
            return names.resolve(function) in _DESCRIBES
    return False
