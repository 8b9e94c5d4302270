"""MGF403: what is stored into a Ref has another shape or dtype than its place."""

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Edit, Failure, Misfit
from mgpu_fix.source import Names, SourceFile, Splice
from mgpu_fix.source.flow import is_pure

from .imports import Imports
from .stores import ATOMS, PYTHON, is_lossy, may_overflow, parenthesised


class StoreShapeOrDtype(Rule):
    """What is stored into a Ref does not have the shape or dtype of what it replaces.

    ## What it means

    `ref[...] = value` neither broadcasts nor converts. JAX calls the operation `swap`.

    ## Why it happens

    A scalar is stored into a whole Ref, or arithmetic in `float32` ends in a Ref of a narrower type.

    ## Example

    ```python
    o_ref[...] = 2.0
    half_ref[...] = x_ref[...] * 2  # x_ref is float32, half_ref float16
    ```

    ## Use instead

    ```python
    o_ref[...] = jnp.full(o_ref.shape, 2.0, o_ref.dtype)
    half_ref[...] = (x_ref[...] * 2).astype(half_ref.dtype)
    ```

    A conversion to a narrower type loses precision: check that this is what the output is meant to hold.

    ## Fix safety

    A number fills its whole place (`jnp.full`), and another dtype is converted (`.astype`). Where the number is
    computed in the kernel, or a float may become infinite, numbers must be there to compare. `ref[...] += value` is
    written out, to convert the sum. It is unsafe where

    - a conversion loses more than digits, from a float to an integer say,
    - the same place is read and stored again and again, as a sum is that is kept in the Ref: it would be rounded each
      time, where more likely the Ref is meant to be wider,
    - a number is computed anew each time that it fills the same place, in a loop or by several blocks or warpgroups:
      an index is more likely missing.

    An array of another shape is left alone.
    """

    code = "MGF403"
    name = "store-shape-or-dtype"
    jax = "0.10.2 to 0.12.0"
    signatures = (Signature("ValueError", r"^Invalid (shape|dtype) for `swap`"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate, for every store of the kernel that does not fit. Raises NoFix."""
        if not failure.facts.misfits:
            raise NoFix("by hand: store an array of the Ref's shape and dtype")
        names = Names(source)
        imports = Imports(names)
        edits: dict[tuple[int, int], Edit] = {}
        accumulates = False
        for misfit in failure.facts.misfits:
            store, target = _find(source, names, misfit)
            if isinstance(store, ast.AugAssign):
                edit = _spelt_out(names, misfit, store, target)
            else:
                edit = _fitted(source, imports, misfit, store, target)
            reads = isinstance(store, ast.AugAssign) or _reads(names, store.value, target.value)
            accumulates = accumulates or (reads and _is_repeated(names, store))
            if edits.setdefault(source.bounds(target), edit) != edit:
                raise NoFix(f"line {target.lineno} stores at several shapes or dtypes")
        misfits = failure.facts.misfits
        unsafe = accumulates or any(m.varies or is_lossy(m.value_dtype, m.dtype) for m in misfits)
        computed = any(m.shape != m.value_shape and m.value_dtype not in PYTHON for m in misfits)
        yield Candidate(
            title=_title(failure.facts.misfits),
            edits=(*imports.edits, *edits.values()),
            applicability=Applicability.UNSAFE if unsafe else Applicability.SAFE,
            needs_oracle=computed or any(may_overflow(m.value_dtype, m.dtype) for m in misfits),
        )


def _title(misfits: Iterable[Misfit]) -> str:
    filled = any(m.shape != m.value_shape for m in misfits)
    cast = any(m.shape == m.value_shape for m in misfits)
    done = (["Fill the Ref with the number"] if filled else []) + (["convert to the Ref's dtype"] if cast else [])
    return " and ".join(done).capitalize().replace("ref", "Ref")


def _find(source: SourceFile, names: Names, misfit: Misfit) -> tuple[ast.Assign | ast.AugAssign, ast.Subscript]:
    """A store and its target."""
    if misfit.span.path != source.path:
        raise NoFix(f"the store stands in {misfit.span.path}")
    for target in names.nodes(ast.Subscript):
        if source.span(target) == misfit.span:
            match names.parents[target]:
                case ast.Assign(targets=[_]) | ast.AugAssign() as store:
                    return store, target
    raise NoFix(f"line {misfit.span.line} is no plain store")


def _is_repeated(names: Names, store: ast.stmt) -> bool:
    """Whether a statement may run more than once in a kernel: in a loop, or in a function that something calls."""
    for node in names.ancestors(store):
        if isinstance(node, ast.For | ast.While):
            return True
        if isinstance(node, ast.FunctionDef):
            chosen = any(
                isinstance(d, ast.Call) and str(names.resolve(d.func)).endswith(".when") for d in node.decorator_list
            )
            if not chosen:
                return not isinstance(names.scope(node), ast.Module)
    return False


def _reads(names: Names, value: ast.expr, ref: ast.expr) -> bool:
    """Whether a value is made of what a Ref holds, also by way of variables."""
    to_do: list[ast.AST] = [value]
    seen: set[ast.AST] = set()
    while to_do:
        node = to_do.pop()
        if node in seen:
            continue
        seen.add(node)
        for part in ast.walk(node):
            if isinstance(part, ast.expr) and ast.unparse(part) == ast.unparse(ref):
                return True
            if isinstance(part, ast.Name):
                bound = names.bindings(part.id, part)
                to_do += [names.statement(b) for b in bound if isinstance(b, ast.expr)]
    return False


def _fitted(source: SourceFile, imports: Imports, misfit: Misfit, store: ast.Assign, target: ast.Subscript) -> Edit:
    ref = target.value
    if not isinstance(ref, ast.Name | ast.Attribute):
        raise NoFix(f"`{source.segment(ref)}` at line {target.lineno} has no name to ask for its dtype")
    text = source.segment(ref)
    match store.value:
        case ast.Call(func=ast.Attribute(attr="full" | "astype"), args=[*_, last]) if (
            source.segment(last) == f"{text}.dtype"
        ):
            raise NoFix(f"line {store.lineno} is fitted already")
    dtype = cst.parse_expression(f"{text}.dtype")
    whole = isinstance(target.slice, ast.Constant) and target.slice.value is ...
    shape = cst.parse_expression(f"{text}.shape" if whole else repr(misfit.shape))
    full = cst.parse_expression(f"{imports.name('jax.numpy')}.full") if misfit.shape != misfit.value_shape else None
    splice = Splice(source, store)
    splice.on(store.value, _filled(full, shape, dtype) if full else _converted(dtype), cst.BaseExpression)
    return splice.edit()


def _spelt_out(names: Names, misfit: Misfit, store: ast.AugAssign, target: ast.Subscript) -> Edit:
    """``ref[i] += value`` as ``ref[i] = (ref[i] + value).astype(ref.dtype)``. Raises NoFix."""
    source = names.source
    if misfit.shape != misfit.value_shape:
        raise NoFix(f"line {store.lineno} makes an array of another shape")
    if not isinstance(target.value, ast.Name | ast.Attribute) or not is_pure(names, target):
        raise NoFix(f"`{source.segment(target)}` at line {store.lineno} cannot be written twice")
    if any(isinstance(n, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(store.value)):
        raise NoFix(f"what is stored at line {store.lineno} is no plain value")
    place, ref = source.segment(target), source.segment(target.value)
    start, end = source.bounds(store)
    behind = source.bounds(target)[1]
    operator, value = re.split(r"=\s*", source.text[behind:end], maxsplit=1)
    operator = operator.strip(" \t)\\\r\n")
    whole = f"{place} {operator} {value}"
    if not _binds(whole, store.value):
        whole = f"{place} {operator} ({value})"
    return Edit(start, end, f"{place} = ({whole}).astype({ref}.dtype)")


def _binds(text: str, value: ast.expr) -> bool:
    """Whether ``value`` is the right operand of the operation that ``text`` spells."""
    try:
        match ast.parse(f"({text})", mode="eval").body:
            case ast.BinOp(right=right):
                return ast.dump(right) == ast.dump(value)
    except SyntaxError:
        pass
    return False


def _filled(full: cst.BaseExpression, shape: cst.BaseExpression, dtype: cst.BaseExpression) -> Callable[[Any], Any]:
    return lambda value: cst.Call(full, [cst.Arg(shape), cst.Arg(value), cst.Arg(dtype)])


def _converted(dtype: cst.BaseExpression) -> Callable[[Any], Any]:
    def convert(value: Any) -> cst.Call:
        array = value if isinstance(value, ATOMS) else parenthesised(value)
        return cst.Call(cst.Attribute(array, cst.Name("astype")), [cst.Arg(dtype)])

    return convert


RULES = (StoreShapeOrDtype(),)
