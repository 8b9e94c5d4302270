"""MGF904: arguments that newer JAX no longer takes, and what stands for them."""

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import libcst as cst

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names
from mgpu_fix.source.flow import is_pure
from mgpu_fix.versions import Window

from ..arguments import in_order, keyword, spliced, with_argument, without, without_keyword
from ..callbacks import mapped
from ..callees import Callees, public
from ..imports import Imports
from .indexing import indexed, tight
from .rules import Change, DriftRule, by_hand, upgrade

_PLGPU = "jax.experimental.pallas.mosaic_gpu"

#: Edits for all calls that give an argument, each with that argument. May raise NoFix or SourceError.
Remedy: TypeAlias = Callable[[Names, Change, Sequence[ast.Call]], Iterable[Edit]]


class RemovedArgument(DriftRule):
    """An argument that this version of JAX's Pallas does not take, or no longer takes.

    ## What it means

    Arguments of Pallas' functions come and go with every release. Keywords that `plgpu.kernel` does not know are passed
    on to `plgpu.Mesh`, which then complains. For `out_shape` and `scratch_shapes` of kernels see MGF901.

    ## Why it happens

    | old | new | gone in |
    |---|---|---|
    | `plgpu.kernel(approx_math=)`, `plgpu.Mesh(approx_math=)` | `plgpu.CompilerParams(approx_math=)` | 0.5.0 |
    | `plgpu.kernel(axis_names=)`, `plgpu.Mesh(axis_names=)` | `grid_names=`, `thread_name=` | 0.6.0 |
    | `emit_pipeline(delay_release=)` | `plgpu.BlockSpec(delay_release=)` of its inputs | 0.7.2 |
    | `copy_gmem_to_smem(partitioned_axis=)` | `leader_tracked=plgpu.CopyPartition.PARTITIONED(axis)` | 0.10.0 |
    | `plgpu.load(ref, idx)` | `plgpu.load(ref.at[idx])` (`idx` is required until 0.10.2) | 0.12.0 |

    ## Example

    ```python
    plgpu.emit_pipeline(body, grid=(4,), in_specs=[plgpu.BlockSpec((64,), lambda i: (i,))], delay_release=1)
    ```

    ## Use instead

    ```python
    plgpu.emit_pipeline(body, grid=(4,), in_specs=[plgpu.BlockSpec((64,), lambda i: (i,), delay_release=1)])
    ```

    ## Fix safety

    Safe: the new form says the same. `delay_release` is given to every input's spec, also where it was a
    `pl.BlockSpec`, which then becomes a `plgpu.BlockSpec`; a spec that something else uses, too, is written anew for
    the inputs. Where the new form needs to know what is not written in the
    file, such as a spec that comes from elsewhere, nothing is changed and the reason is told.
    """

    code = "MGF904"
    name = "removed-argument"
    jax = "any"
    kinds = ("removed", "aged")
    nothing = "no call here that gives the argument was found; look it up in JAX's Pallas changelog"
    signatures = (
        *(
            Signature("TypeError", rf"^{callee}\(\) got an unexpected keyword argument '")
            for callee in (
                *("kernel", r"Mesh\.__init__", "pallas_call", r"BlockSpec\.__init__", r"CompilerParams\.__init__"),
                *(r"emit_pipeline\w*", r"Barrier\.__init__", r"MemorySpace\.__call__"),
                *("load", "async_load_tmem", "async_prefetch", r"copy_\w+_to_\w+"),
            )
        ),
        Signature(
            "TypeError",
            r"^(load|async_load_tmem)\(\) takes 1 positional argument but \d+ "
            r"(were|positional arguments \(and \d+ keyword-only arguments?\) were) given$",
        ),
        Signature("TypeError", r"^load\(\) missing 1 required positional argument: 'idx'"),
    )

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for each argument that a call in the file gives."""
        for change in known:
            remedy = _REMEDIES.get((change.symbol.removeprefix(f"{_PLGPU}."), change.argument))
            if not change.argument or change.symbol.rpartition(".")[2] not in names.source.text:
                continue
            if remedy is None and change.kind == "removed":
                yield from by_hand(names, change, window, _calls(names, change))
            elif remedy is not None:
                yield from upgrade(names, change, window, _calls(names, change), _with(remedy, names, change))


def _with(remedy: Remedy, names: Names, change: Change) -> Callable[[Sequence[ast.Call]], Iterable[Edit]]:
    return functools.partial(remedy, names, change)


def _calls(names: Names, change: Change) -> Iterator[ast.Call]:
    callees = Callees(names, {change.symbol}, {change.argument})
    for call in names.nodes(ast.Call):
        by_name = any(keyword.arg == change.argument for keyword in call.keywords)
        by_place = change.index is not None and len(call.args) > change.index
        arguments = callees.arguments(call) if by_name or by_place else []
        if any(a.parameter == change.argument or (a.index >= 0 and a.index == change.index) for a in arguments):
            yield call


def _value(call: ast.Call, argument: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == argument), None)


def _place(call: ast.Call, argument: str) -> int:
    return next(i for i, a in enumerate(in_order(call)) if isinstance(a, ast.keyword) and a.arg == argument)


# ------------------------------------------------------------------ copies


def _partitioned_axis(names: Names, change: Change, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    """``partitioned_axis=0`` is ``leader_tracked=plgpu.CopyPartition.PARTITIONED(0)``, None stays None."""
    imports = Imports(names)
    for call in calls:
        for given in call.keywords:
            if given.arg == change.argument:
                start, _ = names.source.bounds(given)
                yield Edit(start, start + len(change.argument), "leader_tracked")
                yield from _partition(names, imports, given.value)
    yield from imports.edits


def _partition(names: Names, imports: Imports, axis: ast.expr) -> Iterator[Edit]:
    start, end = names.source.bounds(axis)
    partitioned = f"{imports.name(_PLGPU)}.CopyPartition.PARTITIONED"
    match axis:
        case ast.Constant(value=None):
            return
        case ast.IfExp():
            yield from _partition(names, imports, axis.body)
            yield from _partition(names, imports, axis.orelse)
        case ast.Constant():
            yield Edit(start, end, f"{partitioned}({names.source.text[start:end]})")
        case _:
            if not is_pure(names, axis) or isinstance(axis, ast.Lambda):
                raise NoFix(f"the axis at line {axis.lineno} may be None, and asking for it may do more than that")
            text = names.source.text[start:end]
            yield Edit(start, end, f"None if {text} is None else {partitioned}({text})")


# ------------------------------------------------------------------ pipelines


def _delay_release(names: Names, change: Change, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    """Every spec of the inputs gets what the pipeline was given for them all."""
    changed: dict[ast.expr, list[Callable[[Any], cst.Call]]] = {}
    for call in calls:
        value = _value(call, change.argument)
        specs = _value(call, "in_specs")
        assert value is not None
        changed.setdefault(call, []).append(functools.partial(without_keyword, name=change.argument))
        if specs is None or (isinstance(value, ast.Constant) and value.value == 0):
            continue
        for spec in _specs(names, specs, (specs,)):
            if spec in changed:
                continue
            made = spec if isinstance(spec, ast.Call) else _anew(names, spec)
            delayed = functools.partial(_delayed, names=names, spec=made, value=_text(names, value, spec))
            changed[spec] = [delayed] if made is spec else [_written(names, made), delayed]
    yield from spliced(names, {call: functools.partial(_all, steps) for call, steps in changed.items()})


def _anew(names: Names, spec: ast.expr) -> ast.Call:
    """The call that makes what a name stands for, which can be written in its place, too. Raises NoFix."""
    made = names.binding(spec.id, spec) if isinstance(spec, ast.Name) else None
    assert isinstance(made, ast.Call)
    inside = set(ast.walk(made))
    for name in (n for n in inside if isinstance(n, ast.Name)):
        home = names.home(name.id, name)
        moved = home not in inside and home is not names.home(name.id, spec)
        if moved or (home not in inside and len(names.bindings(name.id, name)) > 1):
            raise NoFix(f"`{name.id}` may be another one at line {spec.lineno} than at line {made.lineno}")
    if not all(is_pure(names, argument) for argument in in_order(made)):
        raise NoFix(f"the spec at line {made.lineno} would be made twice, and its arguments with it")
    return made


def _written(names: Names, made: ast.Call) -> Callable[[cst.BaseExpression], cst.Call]:
    text = names.source.segment(made).replace(names.source.newline, "\n")
    return lambda _: cst.ensure_type(cst.parse_expression(text), cst.Call)


def _all(steps: Iterable[Callable[[Any], cst.Call]], call: Any) -> Any:
    for step in steps:
        call = step(call)
    return call


def _text(names: Names, value: ast.expr, at: ast.expr) -> str:
    """A value as it can be written at another place. Raises NoFix."""
    for name in (n for n in ast.walk(value) if isinstance(n, ast.Name)):
        if names.home(name.id, at) is not names.home(name.id, value):
            raise NoFix(f"`{name.id}` is not known at line {at.lineno}, where the spec is made")
    if not is_pure(names, value):
        raise NoFix(f"the value at line {value.lineno} would be computed once for each spec")
    return names.source.segment(value)


def _specs(names: Names, value: ast.expr, within: tuple[ast.expr, ...]) -> Iterator[ast.expr]:
    """The calls that make the specs of a list, and are used in ``within`` only; for one that is used elsewhere, too,
    its name. Raises NoFix where one is not found."""
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.BinOp(op=ast.Mult(), left=ast.List() | ast.Tuple() as part) | ast.Starred(value=part):
            parts = [part]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            parts = [left, right]
        case ast.IfExp(body=left, orelse=right):
            parts = [left, right]
        case ast.ListComp(elt=part):
            parts = [part]
        case ast.Call() if _is_spec(names, value):
            yield value
            return
        case ast.Name(id=name) if isinstance(bound := names.binding(name, value), ast.expr):
            for use in names.uses(name, names.home(name, value) or bound):
                if not any(use is outer or outer in names.ancestors(use) for outer in within):
                    if _is_spec(names, bound):
                        yield value
                        return
                    raise NoFix(f"`{name}` is also used at line {use.lineno}, where nothing may be delayed")
            parts, within = [bound], (*within, bound)
        case _:
            raise NoFix(f"the spec at line {value.lineno} is not made in this file")
    for part in parts:
        yield from _specs(names, part, within)


_SPECS = {f"{_PLGPU}.BlockSpec", "jax.experimental.pallas.BlockSpec", f"{_PLGPU}.GPUBlockSpec"}


def _is_spec(names: Names, value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and public(names.resolve(value.func)) in _SPECS


def _delayed(call: cst.Call, names: Names, spec: ast.Call, value: str) -> cst.Call:
    call = with_argument(call, keyword("delay_release", value))
    if public(names.resolve(spec.func)) == "jax.experimental.pallas.BlockSpec":
        imports = Imports(names)
        name = imports.name(_PLGPU)
        if imports.edits:
            raise NoFix(f"the file does not import {_PLGPU}, whose BlockSpec the pipeline needs")
        call = call.with_changes(func=cst.parse_expression(f"{name}.BlockSpec"))
    return call


# ------------------------------------------------------------------ kernels and meshes


def _approx_math(names: Names, change: Change, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    """It belongs to the compiler's parameters."""
    changed: dict[ast.expr, Callable[[cst.Call], cst.Call]] = {}
    imports = Imports(names)
    params = f"{imports.name(_PLGPU)}.CompilerParams"
    for call in calls:
        value = _value(call, "approx_math")
        assert value is not None
        text = names.source.segment(value)
        changed[call] = functools.partial(without_keyword, name="approx_math")
        for target in [call] if change.symbol == f"{_PLGPU}.kernel" else mapped(names, call):
            given = _value(target, "compiler_params")
            if given is None:
                add = functools.partial(with_argument, new=keyword("compiler_params", f"{params}(approx_math={text})"))
                changed[target] = functools.partial(_all, [changed[target], add] if target in changed else [add])
            elif isinstance(given, ast.Call) and _value(given, "approx_math") is not None:
                raise NoFix(f"the parameters at line {given.lineno} say approx_math, too")
            elif isinstance(given, ast.Call):
                changed[given] = functools.partial(with_argument, new=keyword("approx_math", text))
            else:
                raise NoFix(f"compiler_params at line {given.lineno} is not written as a call")
    yield from spliced(names, changed)
    yield from imports.edits


def _axis_names(names: Names, change: Change, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    """The last name is that of the threads, if there are any; the others are the grid's."""
    source = names.source
    for call in calls:
        given = next(k for k in call.keywords if k.arg == "axis_names")
        if not isinstance(given.value, ast.Tuple | ast.List) or any(
            isinstance(e, ast.Starred) for e in given.value.elts
        ):
            raise NoFix(f"the names at line {given.value.lineno} are not written out")
        threads = _value(call, "num_threads")
        if any(k.arg is None for k in call.keywords) or isinstance(threads, ast.IfExp):
            raise NoFix(f"whether the kernel at line {call.lineno} has threads is not known")
        has_threads = _has_threads(call, threads, len(given.value.elts))
        elements = [source.segment(e) for e in given.value.elts]
        grid = elements[:-1] if has_threads else elements
        start, end = source.bounds(given)
        parts = []
        if grid or _value(call, "grid") is not None:
            parts.append(f"grid_names=({', '.join(grid)}{',' if len(grid) == 1 else ''})")
        if has_threads:
            parts.append(f"thread_name={elements[-1]}")
        yield Edit(start, end, _joined(names, call, given, parts))


def _has_threads(call: ast.Call, threads: ast.expr | None, count: int) -> bool:
    """Whether the last of ``count`` axes is that of the threads. Raises NoFix where that is not known."""
    if threads is None or isinstance(threads, ast.Constant):
        return threads is not None and threads.value is not None
    grid, cluster = _value(call, "grid"), _value(call, "cluster")
    if isinstance(grid, ast.Tuple | ast.List) and (cluster is None or isinstance(cluster, ast.Tuple | ast.List)):
        return count > len(grid.elts) + len(getattr(cluster, "elts", ()))
    raise NoFix(f"whether the kernel at line {call.lineno} has threads is not known")


def _joined(names: Names, call: ast.Call, given: ast.keyword, parts: list[str]) -> str:
    """Arguments in place of one: on lines of their own where that one has one."""
    line = names.source.line(given.lineno)
    before = line[: given.col_offset]
    own_line = not before.strip() and given.lineno > call.lineno
    return (f",{names.source.newline}{before}" if own_line else ", ").join(parts)


def _tiles(names: Names, change: Change, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    """Tiles of 64 rows become tiles of 8; how memory is tiled changes no value."""
    for call in calls:
        shape = _value(call, change.argument) or (call.args[0] if call.args else None)
        if isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) > 1:
            rows = shape.elts[-2]
            if isinstance(rows, ast.Constant) and rows.value == 64:
                yield Edit(*names.source.bounds(rows), "8")


# ------------------------------------------------------------------ loads


def _index(names: Names, change: Change, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    """``load(ref, idx)`` is ``load(ref.at[idx])``."""
    changed: dict[ast.expr, Callable[[cst.Call], cst.BaseExpression]] = {}
    for call in calls:
        if any(isinstance(a, ast.Starred) for a in call.args) or not call.args:
            raise NoFix(f"the arguments at line {call.lineno} are not written out")
        if public(names.resolve(call.func)) != change.symbol:
            raise NoFix(f"the call at line {call.lineno} is one of a function in between")
        index = _value(call, change.argument) or call.args[1]
        changed[call] = functools.partial(_at, place=in_order(call).index(_given(call, index)))
    yield from spliced(names, changed)


def _given(call: ast.Call, value: ast.expr) -> ast.expr | ast.keyword:
    return next((k for k in call.keywords if k.value is value), value)


def _at(call: cst.Call, place: int) -> cst.Call:
    index = call.args[place].value
    ref, *_ = call.args
    call = without(call, place)
    if isinstance(index, cst.Tuple) and not index.elements:
        return call
    first = ref.with_changes(value=indexed(cst.Attribute(tight(ref.value), cst.Name("at")), index))
    return call.with_changes(args=[first.with_changes(comma=call.args[0].comma), *call.args[1:]])


_REMEDIES: Mapping[tuple[str, str], Remedy] = {
    ("copy_gmem_to_smem", "partitioned_axis"): _partitioned_axis,
    ("async_prefetch", "partitioned_axis"): _partitioned_axis,
    ("emit_pipeline", "delay_release"): _delay_release,
    ("emit_pipeline_warp_specialized", "delay_release"): _delay_release,
    ("kernel", "approx_math"): _approx_math,
    ("Mesh", "approx_math"): _approx_math,
    ("kernel", "axis_names"): _axis_names,
    ("Mesh", "axis_names"): _axis_names,
    ("TilingTransform", "tiling"): _tiles,
    ("load", "idx"): _index,
    ("async_load_tmem", "idx"): _index,
}

RULES = (RemovedArgument(),)
