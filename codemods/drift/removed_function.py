"""MGF906: functions that newer JAX no longer has, and the expressions that stand for them."""

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import libcst as cst

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names, Splice
from mgpu_fix.versions import Window

from ..arguments import in_order, runs, spliced, without_statement
from .indexing import indexed, tight
from .rules import Change, DriftRule, by_hand, upgrade, uses_of

_PL = "jax.experimental.pallas."
_PLGPU = "jax.experimental.pallas.mosaic_gpu."

_GONE = r"load|store|swap|atomic_\w+|dot|max_contiguous"
_LACKS = r"^module 'jax\.experimental\.pallas"

#: Edits for all uses of a function. May raise NoFix or SourceError.
Remedy: TypeAlias = Callable[[Names, Sequence[ast.expr | ast.alias]], Iterable[Edit]]


class RemovedFunction(DriftRule):
    """A function of `pl` or `plgpu` that this version of JAX no longer has.

    ## What it means

    What the function did has another form now: an index, a method, or nothing at all.

    ## Why it happens

    | old | new | gone in |
    |---|---|---|
    | `pl.load(ref, idx)`, `pl.store(ref, idx, value)` | `ref[idx]`, `ref[idx] = value` | 0.9.0 |
    | `plgpu.TransposeTransform(...)` among transforms | nothing: WGMMA no longer needs it | 0.10.1 |
    | `plgpu.transpose_ref(ref, axes)` | `ref.transpose(axes)` | warned of since 0.11.2 |

    ## Example

    ```python
    o_ref[...] = pl.load(x_ref, (slice(None),)) * 2
    ```

    ## Use instead

    ```python
    o_ref[...] = x_ref[:] * 2
    ```

    ## Fix safety

    Safe: the new form does the same. Masked loads and stores, which Mosaic GPU never had, are left alone, and so is
    every function for which the table knows no form.
    """

    code = "MGF906"
    name = "removed-function"
    jax = "any"
    kinds = ("removed",)
    nothing = "no call of the function was found in this file; look it up in JAX's Pallas changelog"
    signatures = (
        Signature("AttributeError", rf"{_LACKS}' has no attribute '({_GONE})'"),
        Signature("ImportError", rf"^cannot import name '({_GONE})' from 'jax\.experimental\.pallas'"),
        Signature("AttributeError", r"^pl\.(debug_checks_enabled|dot) was deprecated in JAX .* removed in JAX"),
        Signature("ValueError", r"^The 'memory_space' attribute is not available on traced array with shape Ref<"),
        Signature("AttributeError", rf"{_LACKS}\.mosaic_gpu' has no attribute '(TransposeTransform|\w+_ref)'"),
    )

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for each function that the file uses."""
        for change in known:
            if not change.argument and change.word in names.source.text:
                remedy = _REMEDIES.get(change.symbol)
                if remedy is None:
                    yield from by_hand(names, change, window, uses_of(names, change))
                else:
                    yield from upgrade(names, change, window, uses_of(names, change), functools.partial(remedy, names))


def _calls(uses: Sequence[ast.expr | ast.alias], count: int, parameters: Sequence[str]) -> dict[ast.Call, list[int]]:
    """Where each of ``parameters`` stands in each call. Raises NoFix where it has others."""
    found = {}
    for use in uses:
        if isinstance(use, ast.alias):
            continue
        if not isinstance(use, ast.Call):
            raise NoFix(f"it is used at line {use.lineno} other than in a call")
        given: dict[str, int] = {}
        for place, argument in enumerate(use.args):
            if isinstance(argument, ast.Starred) or place >= len(parameters):
                raise NoFix(f"the arguments at line {use.lineno} are not those that have another form")
            given[parameters[place]] = place
        for place, keyword in enumerate(use.keywords, len(use.args)):
            if keyword.arg is not None and keyword.arg in parameters:
                given[keyword.arg] = place
            elif not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None):
                raise NoFix(f"`{keyword.arg or '**'}` at line {use.lineno} has no other form")
        if len(given) < count:
            raise NoFix(f"the call at line {use.lineno} lacks an argument")
        found[use] = [given[p] for p in parameters if p in given]
    return found


def _without_imports(names: Names, uses: Sequence[ast.expr | ast.alias]) -> Iterator[Edit]:
    """Imports without what nothing uses any more."""
    source = names.source
    for alias in (use for use in uses if isinstance(use, ast.alias)):
        statement = names.parents[alias]
        assert isinstance(statement, ast.ImportFrom)
        if len(statement.names) == 1:
            yield without_statement(names, statement)
            continue
        at = statement.names.index(alias)
        start, end = source.bounds(alias)
        if at + 1 < len(statement.names):
            end, _ = source.bounds(statement.names[at + 1])
        else:
            _, start = source.bounds(statement.names[at - 1])
        if "#" in source.text[start:end]:
            raise NoFix(f"a comment stands beside the import at line {alias.lineno}")
        yield Edit(start, end, "")


def _load(names: Names, uses: Sequence[ast.expr | ast.alias]) -> Iterator[Edit]:
    calls = _calls(uses, 2, ("x_ref_or_view", "idx"))

    def loaded(call: cst.Call, places: Sequence[int]) -> cst.Subscript:
        ref, index = (call.args[place].value for place in places)
        return indexed(ref, index)

    yield from spliced(names, {c: functools.partial(loaded, places=p) for c, p in calls.items()})
    yield from _without_imports(names, uses)


#: built-in functions that compute and do nothing else
_PURE = frozenset({"slice", "int", "float", "bool", "len", "range", "min", "max", "abs", "sum", "tuple", "list"})


def _may_act(names: Names, argument: ast.expr | ast.keyword) -> bool:
    """Whether computing an argument may do something, so that it matters when it is computed."""
    for node in ast.walk(argument):
        match node:
            case ast.NamedExpr() | ast.Await() | ast.Yield():
                return True
            case ast.Call(func=ast.Name(id=name) as func) if name not in _PURE:
                if not (names.resolve(func) or "").startswith("jax."):
                    return True
    return False


def _store(names: Names, uses: Sequence[ast.expr | ast.alias]) -> Iterator[Edit]:
    calls = _calls(uses, 3, ("x_ref_or_view", "idx", "val"))
    for call in calls:
        if not isinstance(names.parents[call], ast.Expr):
            raise NoFix(f"the value of the call at line {call.lineno} is used")
        index, value = (in_order(call)[place] for place in calls[call][1:])
        if _may_act(names, index) and _may_act(names, value):
            raise NoFix(f"line {call.lineno} computes the index before the value, and an assignment the value first")

    def stored(old: Any, places: Sequence[int]) -> list[cst.BaseSmallStatement]:
        call = cst.ensure_type(cst.ensure_type(old, cst.Expr).value, cst.Call)
        ref, index, value = (call.args[place].value for place in places)
        return [cst.Assign([cst.AssignTarget(indexed(ref, index))], value)]

    for run in runs(names.source, names, calls):
        splice = Splice(names.source, run.first, run.last)
        for node in run.nodes:
            places = next(p for c, p in calls.items() if c is node)
            splice.replace(names.statement(node), functools.partial(stored, places=places))
        yield splice.edit()
    yield from _without_imports(names, uses)


def _transpose(names: Names, uses: Sequence[ast.expr | ast.alias]) -> Iterator[Edit]:
    calls = _calls(uses, 2, ("ref", "permutation"))

    def transposed(call: cst.Call, places: Sequence[int]) -> cst.Call:
        ref, permutation = (call.args[place].value for place in places)
        return cst.Call(cst.Attribute(tight(ref), cst.Name("transpose")), [cst.Arg(permutation)])

    yield from spliced(names, {c: functools.partial(transposed, places=p) for c, p in calls.items()})
    yield from _without_imports(names, uses)


def _checks(names: Names, uses: Sequence[ast.expr | ast.alias]) -> Iterator[Edit]:
    """``pl.debug_checks_enabled()`` is ``pl.enable_debug_checks.value``."""
    for use in uses:
        if not isinstance(use, ast.Call) or not isinstance(use.func, ast.Attribute):
            raise NoFix(f"it is used at line {use.lineno} other than as pl.debug_checks_enabled()")
        yield Edit(*names.source.bounds(use), f"{names.source.segment(use.func.value)}.enable_debug_checks.value")


def _transform(names: Names, uses: Sequence[ast.expr | ast.alias]) -> Iterator[Edit]:
    """The elements of tuples and lists, and the names that are given to such."""
    for use in uses:
        if isinstance(use, ast.alias):
            raise NoFix(f"it is imported by its name at line {use.lineno}")
        parent = names.parents[use]
        gone: list[ast.expr] = [use]
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            if names.binding(name, parent.targets[0]) is not use:
                raise NoFix(f"`{name}` at line {use.lineno} has other values, too")
            gone = list(names.uses(name, names.home(name, parent.targets[0]) or parent))
            yield without_statement(names, parent)
        for element in gone:
            yield _without_element(names, element)


def _without_element(names: Names, element: ast.expr) -> Edit:
    parent, source = names.parents[element], names.source
    if not isinstance(parent, ast.Tuple | ast.List) or element not in parent.elts:
        raise NoFix(f"the transform at line {element.lineno} is not written as an element of the transforms")
    at = parent.elts.index(element)
    start, end = source.bounds(element)
    if len(parent.elts) == 1:
        outer = source.bounds(parent)
        return Edit(*outer, "()" if isinstance(parent, ast.Tuple) else "[]")
    if at == 0:
        end, _ = source.bounds(parent.elts[1])
    else:
        _, start = source.bounds(parent.elts[at - 1])
    text = source.text[start:end]
    if "#" in text:
        raise NoFix(f"a comment stands beside the transform at line {element.lineno}")
    last_of_two = len(parent.elts) == 2 and at == 1 and isinstance(parent, ast.Tuple)
    return Edit(start, end, "," if last_of_two and source.text[end : end + 1] != "," else "")


_REMEDIES: Mapping[str, Remedy] = {
    f"{_PL}load": _load,
    f"{_PL}store": _store,
    f"{_PL}swap": _store,
    f"{_PL}debug_checks_enabled": _checks,
    f"{_PLGPU}transpose_ref": _transpose,
    f"{_PLGPU}TransposeTransform": _transform,
}

RULES = (RemovedFunction(),)
