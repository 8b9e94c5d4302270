"""What code does besides computing: JAX traces both branches of a choice and the body of a loop once, so that what such
code does to Python's own objects is done always, and once."""

import ast
from collections.abc import Iterator, Sequence

from mgpu_fix.catalogue import NoFix
from mgpu_fix.source import Names

_PURE_BUILTINS = """
abs all any bool dict divmod enumerate float int isinstance len list max min range reversed round slice sorted sum tuple
zip
"""
_PURE_METHODS = """
all any argmax argmin astype bitcast clip cumsum dot flatten max mean min prod ravel reshape round squeeze sum swapaxes
transpose
"""
_BUILTINS, _METHODS = frozenset(_PURE_BUILTINS.split()), frozenset(_PURE_METHODS.split())
#: of ``x.at[i]``, which make a new array
_OF_PLACES = frozenset({"add", "divide", "get", "max", "min", "multiply", "power", "set"})
_LIBRARIES = ("jax.", "numpy.", "functools.partial", "math.")
_WATCHES = frozenset({"eval", "exec", "globals", "locals", "vars"})
_OBJECTS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)


def check_effects(names: Names, nodes: Sequence[ast.AST], seen: frozenset[ast.AST] = frozenset()) -> None:
    """Raises NoFix where some code does anything to Python's own objects, or may."""
    for node in (n for top in nodes for n in ast.walk(top)):
        match node:
            case ast.NamedExpr() | ast.Global() | ast.Nonlocal() | ast.Import() | ast.ImportFrom() | ast.ClassDef():
                raise NoFix("by hand: it sets a name that outlives it, which JAX would do always")
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                _refuse(names, node)
            case ast.Subscript(ctx=ast.Store() | ast.Del()) if not _is_place(names, node):
                _refuse(names, node)
            case ast.Call():
                _check_call(names, node, seen)
            case ast.For(iter=ast.Name(id=name) as iterated):
                bound = names.binding(name, iterated)
                made = isinstance(bound, ast.Call) and not _is_library(names, bound)
                if made or isinstance(bound, ast.GeneratorExp):
                    _refuse(names, iterated)


def check_watched(names: Names, function: ast.AST) -> None:
    """Raises NoFix where a function looks its names up by their text."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _WATCHES:
            raise NoFix(f"by hand: `{node.func.id}` may read what depends on it")


def check_own(names: Names, node: ast.AST, kernel: str) -> None:
    """Raises NoFix where ``node`` lies in a function that other code than the kernel may run."""
    if not _is_own(names, node, kernel, frozenset()):
        raise NoFix("by hand: it lies in a function that other code runs, too, for which it may be right")


def _is_own(names: Names, node: ast.AST, kernel: str, seen: frozenset[ast.AST]) -> bool:
    around = [a for a in names.ancestors(node) if isinstance(a, ast.FunctionDef | ast.Lambda)]
    if any((a.name if isinstance(a, ast.FunctionDef) else "<lambda>") == kernel for a in around):
        return True
    for function in (a for a in around if isinstance(a, ast.FunctionDef)):
        if function in seen:
            return True
        home = names.home(function.name, function)
        uses: list[ast.AST] = [*names.uses(function.name, home)] if home is not None else []
        uses += names.attributes(function.name)
        if uses:
            return all(_is_own(names, use, kernel, seen | {function}) for use in uses)
    return False


def _refuse(names: Names, node: ast.AST) -> None:
    raise NoFix(f"by hand: `{names.source.segment(node)}` is no place in a Ref, and JAX would change it always")


def _check_call(names: Names, call: ast.Call, seen: frozenset[ast.AST]) -> None:
    function = call.func
    if _is_library(names, call) or (isinstance(function, ast.Call) and _is_library(names, function)):
        return
    if isinstance(function, ast.Name):
        if function.id in _BUILTINS and not names.bindings(function.id, function):
            return
        bound: ast.AST | None = names.binding(function.id, function)
        if isinstance(bound, ast.Call) and names.resolve(bound.func) == "functools.partial" and bound.args:
            first = bound.args[0]
            bound = names.binding(first.id, first) if isinstance(first, ast.Name) else None
        if isinstance(bound, ast.FunctionDef | ast.Lambda):
            objects = [a for a in call.args if isinstance(a, ast.Name) and _is_object(names, a)]
            if not objects and bound not in seen:
                body = bound.body if isinstance(bound.body, list) else [bound.body]
                check_effects(names, body, seen | {bound})
            if not objects:
                return
    if isinstance(function, ast.Attribute):
        of_place = isinstance(function.value, ast.Subscript) and isinstance(function.value.value, ast.Attribute)
        if function.attr in _METHODS or (of_place and function.attr in _OF_PLACES):
            return
    raise NoFix(f"by hand: what `{names.source.segment(function)}(...)` does is not known, and JAX would do it always")


def _is_library(names: Names, call: ast.Call) -> bool:
    return (names.resolve(call.func) or "").startswith(_LIBRARIES)


def _is_place(names: Names, node: ast.Subscript) -> bool:
    """Whether what is stored to is a place in a Ref, as far as the file tells."""
    base: ast.expr = node
    while isinstance(base, ast.Subscript | ast.Attribute):
        if isinstance(base, ast.Subscript) and any(
            isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(base.slice)
        ):
            return False
        base = base.value
    return isinstance(base, ast.Name) and _holds_refs(names, base, 4)


def _holds_refs(names: Names, name: ast.Name, depth: int) -> bool:
    bound = names.bindings(name.id, name)
    if len(bound) != 1 or depth == 0:
        return False
    [one] = bound
    if isinstance(one, ast.arg):
        given = list(_given(names, one))
        return not any(isinstance(g, _OBJECTS) or (isinstance(g, ast.Name) and _is_object(names, g)) for g in given)
    if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
        return True
    while isinstance(one, ast.Subscript | ast.Attribute):
        one = one.value
    return isinstance(one, ast.Name) and one.id != name.id and _holds_refs(names, one, depth - 1)


def _given(names: Names, parameter: ast.arg) -> Iterator[ast.expr]:
    """What the file's own calls give a parameter of a function."""
    function = next((a for a in names.ancestors(parameter) if isinstance(a, ast.FunctionDef)), None)
    if function is None:
        return
    place = next((i for i, a in enumerate(function.args.args) if a is parameter), None)
    for call in names.nodes(ast.Call):
        if isinstance(call.func, ast.Name) and names.binding(call.func.id, call.func) is function:
            if place is not None and len(call.args) > place:
                yield call.args[place]
            yield from (k.value for k in call.keywords if k.arg == parameter.arg)
    defaults = [*function.args.defaults, *(d for d in function.args.kw_defaults if d)]
    yield from (d for d in defaults if isinstance(d, _OBJECTS))


def _is_object(names: Names, name: ast.Name) -> bool:
    """Whether a name may stand for an object of Python's that can be changed."""
    bound = names.binding(name.id, name)
    return isinstance(bound, _OBJECTS) or (isinstance(bound, ast.Call) and not _is_library(names, bound))
