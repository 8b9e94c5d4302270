"""MGF505: bodies of pipelines without a parameter for the indices."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Candidate, Edit, Failure, Upgrade
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import is_pure, own_nodes
from mgpu_fix.versions import Window

from ..arguments import in_order
from ..callbacks import Callback, given, only_called_by
from ..callees import Callees, positional, starred
from ..stores import unused
from .rules import Change, DriftRule, upgrade

_PIPELINES = frozenset(
    f"jax.experimental.pallas.mosaic_gpu.emit_pipeline{suffix}" for suffix in ("", "_warp_specialized")
)
_PALLAS = "jax.experimental.pallas."
#: part of a parameter's name that says that it is a Ref
_REF = re.compile(r"ref|smem|gmem|tmem")
_COUNT = re.compile(r"(\w+)\(\) takes (\d+) positional")


class PipelineBodyIndices(DriftRule):
    """The body of a `plgpu.emit_pipeline` has no parameter for the indices.

    ## What it means

    The pipeline calls its body with the tuple of loop indices first, and then the SMEM Refs of inputs and outputs.

    ## Why it happens

    In `pl.pallas_call`, and in `plgpu.emit_pipeline` before JAX 0.6.0, a body gets only Refs. Where the count is short
    because the body returns its result instead of storing it, see MGF401.

    ## Example

    ```python
    def body(x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2

    plgpu.emit_pipeline(body, grid=(4,), in_specs=[spec], out_specs=[spec])(x_gmem, o_gmem)
    ```

    ## Use instead

    ```python
    def body(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2
    ```

    ## Fix safety

    Safe: the new parameter is not used. A body that something else calls, too, keeps its parameters: the pipeline gets
    `lambda _, *refs: body(*refs)`. A body is left alone where its first parameter may be the indices, so that it is
    another one that is missing, and where the specs are not written out and the error does not say how many Refs there
    are.
    """

    code = "MGF505"
    name = "pipeline-body-indices"
    jax = "0.6.0 and newer"
    kinds = ("callback",)
    nothing = "no body of a pipeline that lacks only the indices was found in this file"
    signatures = (
        Signature(
            "TypeError",
            rf"takes ({'|'.join(f'{n} positional arguments? but {n + 1}' for n in range(10))}) were given$",
            callee="plgpu.emit_pipeline",
        ),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Bodies whose specs are written out, or the one that the error counts the parameters of."""
        try:
            return super().candidates(failure, source)
        except NoFix as e:
            counted = _COUNT.search(failure.message)
            names = Names(source)
            pipelines = [call for call in _pipelines(names) if counted and _is_counted(names, call, counted)]
            if not pipelines:
                raise e from None
            return [Candidate("Add a parameter for the indices", tuple(_rewritten(names, pipelines)))]

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for all pipelines of the file."""
        for change in known:
            if change.symbol in _PIPELINES and "emit_pipeline" in names.source.text:
                pipelines = [call for call in _pipelines(names) if _lacks_indices(names, call)]
                yield from upgrade(names, change, window, pipelines, lambda calls: _rewritten(names, calls))
                return


RULES = (PipelineBodyIndices(),)


def _pipelines(names: Names) -> Iterator[ast.Call]:
    callees = Callees(names, _PIPELINES, {"in_specs", "out_specs", "init_carry"})
    for call in names.nodes(ast.Call):
        found = callees.of(call)
        if found and found[0].shift == 0 and not starred(call):
            yield call


def _body(names: Names, call: ast.Call) -> Callback:
    """The body of a pipeline: its first argument, or what it decorates. Raises NoFix."""
    first = 1 if names.resolve(call.func) == "functools.partial" else 0
    if len(call.args) > first:
        return given(names, call.args[first])
    parent = names.parents[call]
    if isinstance(parent, ast.FunctionDef) and parent.decorator_list[-1] is call:
        return Callback(parent)
    raise NoFix(f"the body of the pipeline at line {call.lineno} is not written beside it")


def _lacks_indices(names: Names, call: ast.Call) -> bool:
    """Whether a pipeline's body takes one Ref for each of its specs, and nothing before them."""
    try:
        callback = _body(names, call)
    except NoFix:
        return False
    by_name = {k.arg: k.value for k in call.keywords}
    if None in by_name:
        return False
    counts = [_count(by_name.get(specs)) for specs in ("in_specs", "out_specs")]
    carry = by_name.get("init_carry")
    has_carry = carry is not None and not (isinstance(carry, ast.Constant) and carry.value is None)
    if any(count is None for count in counts) or (has_carry and not isinstance(carry, ast.expr)):
        return False
    refs = sum(count or 0 for count in counts)
    parameters = callback.parameters
    return bool(refs) and len(parameters) == refs + has_carry and _takes_ref(names, callback)


def _count(specs: ast.expr | None) -> int | None:
    """How many specs are written out, None where nobody knows."""
    match specs:
        case None:
            return 0
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return None if any(isinstance(e, ast.Starred) for e in elements) else len(elements)
        case ast.BinOp(op=ast.Mult(), left=left, right=ast.Constant(value=int(times))):
            one = _count(left)
            return None if one is None else one * times
    return None


def _is_counted(names: Names, call: ast.Call, counted: re.Match[str]) -> bool:
    """Whether a pipeline's body is the function that an error names, with as many parameters as it says."""
    try:
        callback = _body(names, call)
    except NoFix:
        return False
    name = getattr(callback.function, "name", "lambda")
    takes = len(positional(callback.function))
    return name == counted[1] and takes == int(counted[2]) and _takes_ref(names, callback)


def _takes_ref(names: Names, callback: Callback) -> bool:
    """Whether the first parameter is used as Refs are, never as indices, and nothing is returned that should be
    stored."""
    function = callback.function
    if not callback.parameters or function.args.vararg or callback.function.args.defaults:
        return False
    if any(isinstance(n, ast.Return) and n.value is not None for n in own_nodes(function)):
        return False
    first = callback.parameters[0].arg
    uses = names.uses(first, function)
    if any(_as_indices(names, use) for use in uses):
        return False
    return any(_as_ref(names, use) for use in uses) or (bool(uses) and bool(_REF.search(first)))


def _as_ref(names: Names, use: ast.Name, depth: int = 3) -> bool:
    """Whether something is used as a Ref, here or in a function of the file that it is passed on to."""
    parent = names.parents[use]
    match parent:
        case ast.Subscript() if parent.value is use:
            return True
        case ast.Attribute(attr="at" | "shape" | "dtype" | "bitcast" | "reshape" | "transpose"):
            return True
        case ast.Call() if use in parent.args:
            made = names.binding(parent.func.id, parent) if isinstance(parent.func, ast.Name) else None
            if isinstance(made, ast.FunctionDef) and not starred(parent) and depth:
                given_to = positional(made)[parent.args.index(use) :][:1]
                inner = [u for p in given_to for u in names.uses(p.arg, made)]
                return any(_as_ref(names, u, depth - 1) for u in inner) and not any(
                    _as_indices(names, u) for u in inner
                )
            return str(names.resolve(parent.func)).startswith(_PALLAS)
    return False


def _as_indices(names: Names, use: ast.Name) -> bool:
    """Whether something is used as the tuple of indices, and not as a Ref."""
    match names.parents[use]:
        case ast.Subscript(value=value, slice=index, ctx=ast.Load()) if value is use:
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            whole = any(isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value is ...) for p in parts)
            return not whole and len(parts) == 1
        case ast.Assign(targets=[ast.Tuple() | ast.List()]) | ast.Starred() | ast.For() | ast.BinOp():
            return True
    return False


def _rewritten(names: Names, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    source = names.source
    for call in calls:
        callback = _body(names, call)
        try:
            only_called_by(names, callback, list(calls))
        except NoFix:
            wrapped = _wrapped(names, call)
            if wrapped is None:
                raise
            yield wrapped
            continue
        start, _ = source.bounds(callback.parameters[0])
        taken = {a.arg for a in (*positional(callback.function), *callback.function.args.kwonlyargs)}
        name = next(n for n in ("_", "_indices", "_loop_indices") if n not in taken)
        yield Edit(start, start, f"{name}, ")


def _wrapped(names: Names, call: ast.Call) -> Edit | None:
    """The body that a pipeline is given in a lambda that drops the indices, None where it cannot stand there.

    For a body with other callers, whose parameters must stay.
    """
    source = names.source
    first = 1 if names.resolve(call.func) == "functools.partial" else 0
    body = call.args[first] if len(call.args) > first else None
    match body:
        case ast.Name():
            function, bound = body, []
        case ast.Call(args=[function, *_]) if all(is_pure(names, part) for part in in_order(body)):
            bound = in_order(body)[1:]  # of functools.partial, or there would be no body
        case _:
            return None
    refs = unused("refs", body)
    arguments = [source.segment(a) for a in bound if isinstance(a, ast.expr)]
    keywords = [source.segment(a) for a in bound if isinstance(a, ast.keyword)]
    text = f"{source.segment(function)}({', '.join((*arguments, f'*{refs}', *keywords))})"
    return Edit(*source.bounds(body), f"lambda {unused('_', body)}, *{refs}: {text}")
