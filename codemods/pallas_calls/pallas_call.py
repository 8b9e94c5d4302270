"""MGF903: kernels of Mosaic GPU declared with ``pl.pallas_call``, which newer JAX no longer lowers."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Candidate, Edit, Failure, Upgrade
from mgpu_fix.source import Names, Overlap, SourceError, SourceFile, merge_edits
from mgpu_fix.versions import NEWEST, Window, parse

from ..callbacks import Callback, applied, given, only_called_by
from ..callees import public
from ..drift.rules import Change, DriftRule, guarded
from ..imports import Imports
from .block_specs import specs_of
from .grid_position import positions, reached
from .mesh_kernels import Writer
from .pipelines import Pipeline

_PLGPU = "jax.experimental.pallas.mosaic_gpu"
_SYMBOL = "jax.experimental.pallas.pallas_call"
_PARAMS = {f"{_PLGPU}.CompilerParams", f"{_PLGPU}.GPUCompilerParams"}
_GRID_SPECS = {"jax.experimental.pallas.GridSpec", f"{_PLGPU}.GridSpec"}
#: what ``plgpu.kernel`` does not want to know of a call, but for values that say nothing
_EMPTY = {"input_output_aliases": ("{}", "()", "None"), "metadata": ("None", "{}")}
#: the first JAX whose ``plgpu.kernel`` takes an argument
_TAKEN_SINCE = {"debug": "0.11.0", "cost_estimate": "0.12.0"}
#: a body that is not written in the file
_UNKNOWN = Callback(ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None)))
#: Refs of GMEM and of SMEM do these alike
_ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "size"})


class PallasCallRemoved(DriftRule):
    """`pl.pallas_call` no longer compiles for Mosaic GPU.

    ## What it means

    From JAX 0.11.2 on `pl.pallas_call` with `plgpu.CompilerParams` fails while lowering, with an `AssertionError` that
    has no text. `backend="mosaic_gpu"` was removed before that, in 0.9.1.

    ## Why it happens

    Mosaic GPU kernels are declared with `plgpu.kernel` now. Their Refs are whole arrays in GMEM, and `grid` only says
    how many blocks run; what cuts the arrays into blocks and copies them to SMEM is `plgpu.emit_pipeline`. Without
    `compiler_params` `pl.pallas_call` uses Triton.

    ## Example

    ```python
    pl.pallas_call(
        body,
        out_shape=out,
        grid=(4,),
        in_specs=[pl.BlockSpec((128,), lambda i: (i,))],
        out_specs=pl.BlockSpec((128,), lambda i: (i,)),
        compiler_params=plgpu.CompilerParams(),
    )(x)
    ```

    ## Use instead

    ```python
    def body_pipeline(*refs):
        i = lax.axis_index("i")
        plgpu.emit_pipeline(
            lambda _, *blocks: body(*blocks),
            grid=(),
            in_specs=[pl.BlockSpec((128,), lambda: (i,))],
            out_specs=[pl.BlockSpec((128,), lambda: (i,))],
        )(*refs)

    plgpu.kernel(body_pipeline, out_type=out, grid=(4,), grid_names=("i",))(x)
    ```

    Axes whose `dimension_semantics` are `"sequential"` become the grid of the pipeline. Without a grid and specs
    `plgpu.kernel(body, out_type=out)(x)` is all there is to it.

    ## Fix safety

    Without a grid, and where the body only loads and stores: safe, the body sees the same values. A grid of blocks is
    written as JAX itself lowered it up to 0.11.0; whether a kernel with it computes the same is held against numbers
    of the original, from the interpreter that all backends of Pallas share, and `apply` takes it for unsafe where there
    are none. `upgrade` runs nothing: it makes the change, and says that it is unverified.
    `pl.program_id` in the body becomes the axis' index. What is not understood is left alone, as are kernels for
    Triton and TPUs, and what has no counterpart in `plgpu.kernel`, such as `input_output_aliases`.
    """

    code = "MGF903"
    name = "pallas-call-removed"
    jax = "0.11.2 and newer; backend=: 0.9.1 and newer"
    kinds = ("pallas_call",)
    nothing = "no call of pl.pallas_call that surely is for Mosaic GPU was found in this file"
    signatures = (
        Signature("AssertionError", r"^$", callee="pl.pallas_call"),
        Signature("TypeError", r"^pallas_call\(\) got an unexpected keyword argument 'backend'"),
    )

    def upgrades(self, names: Names, window: Window) -> Iterator[Upgrade]:
        """As :meth:`found`: each call says by itself which backend it is for."""
        return self.found(names, window, self._known(window))

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for all calls that can be changed together, and one for each that cannot."""
        changes = {change.argument: change for change in known if change.symbol == _SYMBOL}
        edits: list[Edit] = []
        together: list[_Rewritten] = []
        made: set[str] = set()
        for call in _calls(names, changes):
            try:
                new = _rewritten(names, call, window, made)
                edits = merge_edits([edits, new.edits])
            except Overlap:
                continue  # in another round
            except (NoFix, SourceError) as e:
                yield _upgrade(names, [call], None, changes.values(), str(e))
            else:
                together.append(new)
        if together:
            yield _upgrade(names, [new.call for new in together], _candidate(together), changes.values())

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One: the calls of the kernel that failed."""
        names = Names(source)
        window = Window(to=parse(failure.jax) if failure.jax else NEWEST)
        changes = {change.argument: change for change in self._known(window) if change.symbol == _SYMBOL}
        named = [(call, _kernel_name(names, call)) for call in _calls(names, changes)]
        calls = [call for call, name in named if name == failure.kernel] or [call for call, name in named if not name]
        if not calls:
            raise NoFix(
                f"{self.nothing}; for Triton, give compiler_params=plgpu_triton.CompilerParams() instead"
                if "backend" in failure.message
                else self.nothing
            )
        made: set[str] = set()
        return [_candidate([_rewritten(names, call, window, made) for call in calls])]


RULES = (PallasCallRemoved(),)


@dataclass(frozen=True)
class _Rewritten:
    """A call and what changes it. ``sure`` says that it needs no numbers."""

    call: ast.Call
    edits: tuple[Edit, ...]
    title: str
    sure: bool


def _candidate(rewritten: Sequence[_Rewritten]) -> Candidate:
    title = ", ".join(dict.fromkeys(new.title for new in rewritten))
    edits = tuple(dict.fromkeys(edit for new in rewritten for edit in new.edits))
    return Candidate(title, edits, needs_oracle=not all(new.sure for new in rewritten))


def _upgrade(
    names: Names, calls: Sequence[ast.Call], candidate: Candidate | None, changes: Iterable[Change], reason: str = ""
) -> Upgrade:
    places = tuple(names.source.span(call) for call in calls)
    gone = min((change.gone for change in changes), key=parse)
    return Upgrade("pl.pallas_call", places, candidate, True, ("pallas_call",), gone, reason)


# ------------------------------------------------------------------ reading a call


def _calls(names: Names, changes: Mapping[str, Change]) -> Iterator[ast.Call]:
    """The calls of ``pl.pallas_call``, or those that bind arguments of it, that are for Mosaic GPU."""
    if not changes or "pallas_call" not in names.source.text:
        return
    for call in names.nodes(ast.Call):
        if (
            public(names.resolve(call.args[0] if _is_partial(names, call) else call.func)) == _SYMBOL
            and any(_is_old(names, k, changes) for k in call.keywords)
            and not guarded(names, call)
        ):
            yield call


def _is_partial(names: Names, call: ast.Call) -> bool:
    return bool(call.args) and names.resolve(call.func) == "functools.partial"


def _is_old(names: Names, given_: ast.keyword, changes: Mapping[str, Change]) -> bool:
    """Whether an argument says that a call is for Mosaic GPU, in a way that is gone."""
    match given_:
        case ast.keyword(arg="backend", value=ast.Constant(value="mosaic_gpu")):
            return True
        case ast.keyword(arg="compiler_params", value=value):
            return "" in changes and _params(names, value) is not None
    return False


def _params(names: Names, value: ast.expr) -> ast.Call | None:
    """The call that makes compiler parameters of Mosaic GPU."""
    bound = names.binding(value.id, value) if isinstance(value, ast.Name) else value
    return bound if isinstance(bound, ast.Call) and public(names.resolve(bound.func)) in _PARAMS else None


def _arguments(names: Names, call: ast.Call) -> dict[str, ast.expr]:
    """What is given, by the names of ``pl.pallas_call``; a grid spec's parts by theirs. Raises NoFix."""
    found: dict[str, ast.expr] = {}
    first = 1 if _is_partial(names, call) else 0
    for argument, name in zip(call.args[first:], ("kernel", "out_shape"), strict=False):
        found[name] = argument
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        raise NoFix(f"not all arguments at line {call.lineno} are written out")
    found |= {k.arg: k.value for k in call.keywords if k.arg}
    spec = found.get("grid_spec")
    if isinstance(spec, ast.Call):
        parts = ("grid", "in_specs", "out_specs", "scratch_shapes")
        if public(names.resolve(spec.func)) not in _GRID_SPECS or any(k.arg not in parts for k in spec.keywords):
            raise NoFix(f"the grid_spec at line {spec.lineno} is not one of Mosaic GPU's")
        found |= dict(zip(parts, spec.args, strict=False)) | {str(k.arg): k.value for k in spec.keywords}
    elif spec is not None:
        raise NoFix(f"the grid_spec at line {spec.lineno} is not written in the call")
    return {name: value for name, value in found.items() if not _says_nothing(names, name, value)}


def _says_nothing(names: Names, name: str, value: ast.expr) -> bool:
    """Whether an argument is what ``pl.pallas_call`` takes for one that is not given."""
    text = names.source.segment(value)
    match name:
        case "backend":
            return True
        case "debug" | "interpret" | "name" | "cost_estimate" | "grid_spec" | "compiler_params":
            return text in ("None", "False")
        case "grid" | "scratch_shapes":
            return text in ("()", "[]", "None")
        case "in_specs" | "out_specs":
            return text == "None" or public(names.resolve(value)).endswith(".no_block_spec")
    return text in _EMPTY.get(name, ())


def _body(names: Names, call: ast.Call, arguments: Mapping[str, ast.expr]) -> Callback:
    """The function that the kernel runs. Raises NoFix where it is not one of this file."""
    if "kernel" in arguments:
        return given(names, arguments["kernel"])
    callbacks = list(applied(names, call))
    if len(callbacks) != 1 or not _is_partial(names, call):
        raise NoFix(f"the call at line {call.lineno} does not say what it runs, or is used several times")
    for user in _users(names, call):
        if any(k.arg not in ("out_shape", "scratch_shapes") for k in user.keywords):
            raise NoFix(f"arguments are added to the call at line {user.lineno}")
    return callbacks[0]


def _users(names: Names, maker: ast.Call) -> Iterator[ast.Call]:
    """The calls of what a call returns."""
    parent = names.parents[maker]
    if isinstance(parent, ast.Call) and parent.func is maker:
        yield parent
    if isinstance(parent, ast.Assign) and isinstance(target := parent.targets[0], ast.Name):
        for use in names.uses(target.id, names.home(target.id, target) or target):
            outer = names.parents[use]
            if isinstance(outer, ast.Call) and outer.func is use:
                yield outer


def _kernel_name(names: Names, call: ast.Call) -> str:
    """The name of the function that the kernel runs, empty where that is not known."""
    try:
        return getattr(_body(names, call, _arguments(names, call)).function, "name", "<lambda>")
    except NoFix:
        return ""


# ------------------------------------------------------------------ writing it anew


def _rewritten(names: Names, call: ast.Call, window: Window, made: set[str]) -> _Rewritten:
    """What changes one call; ``made`` are names of new functions. Raises NoFix, or SourceError."""
    arguments = _arguments(names, call)
    for name in _EMPTY:
        if name in arguments:
            raise NoFix(f"plgpu.kernel has no counterpart of {name}= at line {arguments[name].lineno}")
    for name, since in _TAKEN_SINCE.items():
        if name in arguments and not window.accepts(since):
            raise NoFix(f"plgpu.kernel takes {name}= from JAX {since} on only")
    try:
        body = _body(names, call, arguments)
    except NoFix:
        if "kernel" not in arguments or not arguments.keys().isdisjoint(("grid", "in_specs", "out_specs")):
            raise
        body = _UNKNOWN
    asked = _asked(names, call, body)
    imports = Imports(names)
    plgpu = imports.name(_PLGPU)
    pipeline = Pipeline(names, call, arguments, body, _params(names, arguments.get("compiler_params", call)))
    writer = Writer(names, call, plgpu, 1 if _is_partial(names, call) else 0, made)
    writer.positions(pipeline, asked, imports)
    title = "Declare the kernel with plgpu.kernel instead of pl.pallas_call"
    if _fits_gmem(names, pipeline, arguments):
        writer.redeclare(arguments, pipeline)
        pipeline.drop_specs()
    else:
        if "interpret" in arguments:
            raise NoFix("a kernel with a pipeline is not interpreted by interpret=; take the argument out")
        title += ", and its blocks with plgpu.emit_pipeline"
        writer.wrap(arguments, pipeline, imports)
    edits = (*writer.edits(), *pipeline.moved, *imports.edits)
    return _Rewritten(call, edits, title, not pipeline.rank and "emit" not in title and body is not _UNKNOWN)


def _asked(names: Names, call: ast.Call, body: Callback) -> list[ast.Call]:
    """Where the kernel asks for its place in the grid. Raises NoFix where another one asks there, too."""
    functions = reached(names, body.function)
    asked = [position for function in functions for position in positions(names, function)]
    if asked and call not in getattr(body.function, "decorator_list", []):
        only_called_by(names, body, [call])
    for function in functions[1:]:
        helper = Callback(function)
        if any(True for _ in positions(names, function)):
            users = [n for n in names.nodes(ast.Name) if not set(functions).isdisjoint(names.ancestors(n))]
            only_called_by(names, helper, list[ast.expr](users))
    return asked


def _fits_gmem(names: Names, pipeline: Pipeline, arguments: Mapping[str, ast.expr]) -> bool:
    """Whether the kernel needs no pipeline: its Refs lie in GMEM, or nothing is done with them that SMEM is for."""
    if pipeline.axes.sequential:
        return False
    if pipeline.body is _UNKNOWN:
        return True
    sides = [specs_of(names, arguments[side]) for side in ("in_specs", "out_specs") if side in arguments]
    if not all(spec.is_gmem for specs in sides for spec in specs):
        return False
    if len(sides) == 2:
        return True
    function = pipeline.body.function
    if function.args.vararg is not None:
        return False
    count = pipeline.scratch_count or 0
    refs = [p.arg for p in pipeline.body.parameters]
    refs = refs[: len(refs) - count]
    uses = {ref: names.uses(ref, function) for ref in refs}
    inputs = refs[:1] if pipeline.scratch_count is None else refs[: len(refs) - _output_count(arguments)]
    if any(_is_stored(names, use) for ref in inputs for use in uses[ref]):
        # What a block of an input is used for does not reach the caller's array.
        return False
    return all(_only_accessed(names, use) for ref in refs for use in uses[ref])


def _output_count(arguments: Mapping[str, ast.expr]) -> int:
    """How many outputs there are; where that is not written out, as many as leave one input at least."""
    value = arguments.get("out_shape")
    return len(value.elts) if isinstance(value, ast.Tuple | ast.List) else 1


def _is_stored(names: Names, use: ast.AST) -> bool:
    """Whether something is stored to a Ref, or to a part of it."""
    match names.parents[use]:
        case ast.Subscript(value=value, ctx=ctx) as part if value is use:
            return not isinstance(ctx, ast.Load) or _is_stored(names, part)
        case ast.Attribute(attr="at") as at:
            return _is_stored(names, at)
    return False


def _only_accessed(names: Names, use: ast.AST) -> bool:
    """Whether a Ref is only loaded, stored, or asked for its type."""
    match names.parents[use]:
        case ast.Subscript(value=value):
            return value is use
        case ast.Attribute(attr="at") as at:
            part = names.parents[at]
            return isinstance(part, ast.Subscript) and part.value is at and _only_accessed(names, part)
        case ast.Attribute(attr=attribute):
            return attribute in _ATTRIBUTES
        case ast.Call(func=func, args=[first, *_]) if first is use:
            dotted = public(names.resolve(func))
            return dotted == f"{_PLGPU}.load" or dotted.startswith("jax.numpy.")
    return False
