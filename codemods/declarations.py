"""Declarations of kernels and of what they allocate that JAX refuses: MGF501, MGF502 and MGF504."""

import ast
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceError, SourceFile

from .allocations import allocations
from .arguments import keyword, replaced, spliced, with_argument, without_keyword
from .callees import Callees, public
from .meshes import asked_axes, declared_axes, quoted, tells_places, unnamed_axes
from .places import standing_at

_ALL = "0.10.2 to 0.12.0.1"
_PLGPU = "jax.experimental.pallas.mosaic_gpu."
_MEMORIES = frozenset(f"{_PLGPU}{name}" for name in ("SMEM", "GMEM", "TMEM"))
_ORDERS = "orders_tensor_core"

Step = Callable[[cst.Call], cst.Call]


class ThreadsAndGridNames(Rule):
    """A mesh has sizes without names, or names without sizes.

    ## What it means

    `grid` and `grid_names`, `cluster` and `cluster_names` must be equally long, and `num_threads` and `thread_name`
    are given both or not at all: the kernel finds out where it runs by name (`lax.axis_index("x")`).

    ## Why it happens

    The names were optional in older versions, and `pl.pallas_call` has none.

    ## Example

    ```python
    plgpu.kernel(body, out_type=out, grid=(4, 2), grid_names=("row",), num_threads=2)
    ```

    ## Use instead

    ```python
    plgpu.kernel(
        body, out_type=out, grid=(4, 2), grid_names=("row", "column"), num_threads=2, thread_name="wg"
    )
    ```

    ## Fix safety

    Safe where the axis has size 1 and the kernel asks for no axis that nobody declares, or where the one that it asks
    for can be no other: all other axes have size 1, and its name is a text nowhere else in the file. Another name is
    `unsafe`, since nothing in the kernel asks for that axis, so that all its blocks or threads do the same, or since
    the axis may be one before. The last names are dropped where there are more than sizes and nothing else in the file
    says them, which is safe; other names without a size are left to you, but for `thread_name`, which gets the one
    thread that there is without it; that is `unsafe` where the kernel asks which thread it is. Sizes and names may be
    constants: that of the names is changed if nothing else uses it.
    """

    code = "MGF501"
    name = "threads-and-grid-names"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^num_threads and thread_name must be either both set or both"),
        Signature("ValueError", r"^(grid|cluster)_names must have the same length as"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate, for the declaration that the error comes from."""
        names = Names(source)
        axes = re.match(r"(grid|cluster)_names", failure.message)
        if axes is None:
            call = _declaration(names, failure, ("num_threads", "thread_name"))
            threads = _value(call, "num_threads")
            if threads is not None and _value(call, "thread_name") is not None:
                raise NoFix(f"the declaration at line {call.lineno} has both; one of them is None where it is made")
            if threads is None:
                one = functools.partial(with_argument, new=keyword("num_threads", "1"))
                level = Applicability.UNSAFE if tells_places(names, call) else Applicability.SAFE
                return [_candidate(names, "Say that there is one thread", {call: [one]}, level)]
            asked = unnamed_axes(names, call)
            taken = {*declared_axes(names), *asked_axes(names)}
            free = next(name for name in ("wg", *(f"wg{i}" for i in range(1, 100))) if name not in taken)
            sure = len(asked) == 1 or _is_one(threads)
            new = keyword("thread_name", quoted(names, asked[0] if len(asked) == 1 else free))
            level = Applicability.SAFE if sure else Applicability.UNSAFE
            step = functools.partial(with_argument, new=new)
            return [_candidate(names, "Name the threads' axis", {call: [step]}, level)]
        call = _declaration(names, failure, (axes[1], f"{axes[1]}_names"))
        return [_named(names, call, axes[1])]


def _named(names: Names, call: ast.Call, axes: str) -> Candidate:
    """The declaration with a name for each of its axes."""
    sizes, given_names = (_constant(names, _value(call, name)) for name in (axes, f"{axes}_names"))
    known = _texts(given_names)
    if not isinstance(sizes, ast.Tuple | ast.List) or known is None:
        raise NoFix(f"the axes of the declaration at line {call.lineno} are not written out")
    elements: list[ast.expr] = getattr(given_names, "elts", [])
    lacking = len(sizes.elts) - len(known)
    if lacking < 0:
        surplus = elements[lacking:]
        _check_unused(names, call, surplus)
        title = f"Drop the name{'s' * (lacking < -1)} {', '.join(known[lacking:])}, which no axis has"
        return _with_names(names, call, f"{axes}_names", [*map(names.source.segment, elements[:lacking])], title)
    if lacking == 0:
        raise NoFix(f"the declaration at line {call.lineno} has as many names as axes")
    asked = unnamed_axes(names, call)
    stem = known[-1] if known else axes[0]
    fresh = (f"{stem}{i}" for i in range(1, 100))
    taken = {*known, *declared_axes(names), *asked_axes(names)}
    made = asked if len(asked) == lacking == 1 else [n for n in fresh if n not in taken][:lacking]
    rest = sizes.elts[len(known) :]
    # The names that there are may be those of other axes: only sizes of 1 say which one an axis has that is asked for.
    alone = all(map(_is_one, rest if not asked else sizes.elts[: len(known)]))
    texts = [*map(names.source.segment, elements), *(quoted(names, name) for name in made)]
    sure = alone and asked in ([], made)
    level = Applicability.SAFE if sure else Applicability.UNSAFE
    title = f"Name {'the axis' if lacking == 1 else 'the axes'} {', '.join(made)}"
    return _with_names(names, call, f"{axes}_names", texts, title, level)


def _with_names(
    names: Names,
    call: ast.Call,
    argument: str,
    texts: list[str],
    title: str,
    level: Applicability = Applicability.SAFE,
) -> Candidate:
    """The declaration with those names, or the constant that it alone takes them from."""
    value = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    given_names, new = _value(call, argument), keyword(argument, value)
    constant = _constant(names, given_names)
    alone = isinstance(given_names, ast.Name) and len(names.loads(given_names.id)) == 1
    if alone and isinstance(constant, ast.Tuple) and len(getattr(names.parents[constant], "targets", "1")) == 1:
        start, end = names.source.bounds(constant)
        bare = names.source.text[start:end][:1] != "("
        return Candidate(title, (Edit(start, end, value[1:-1] if bare else value),), level)
    step = functools.partial(replaced if given_names is not None else with_argument, new=new)
    return _candidate(names, title, {call: [step]}, level)


def _check_unused(names: Names, call: ast.Call, surplus: list[ast.expr]) -> None:
    """Raises NoFix where something in the file may ask for a name that no axis has."""
    unwanted = {e.value for e in surplus if isinstance(e, ast.Constant)}
    for text in names.nodes(ast.Constant):
        if text not in surplus and text.value in unwanted and isinstance(text.value, str):
            raise NoFix(
                f"the declaration at line {call.lineno} has more names than axes, and line {text.lineno} says "
                f"`{text.value}`, too"
            )


class BarrierOrdersTensorCore(Rule):
    """A barrier that tensor core operations arrive at is not declared for them.

    ## What it means

    `plgpu.tcgen05_mma` and `plgpu.tcgen05_commit_arrive` need a barrier with `orders_tensor_core=True`: waiting on it
    then also orders the tensor core's accesses to TMEM.

    ## Why it happens

    The default is `False`, which is cheaper and enough for copies.

    ## Example

    ```python
    scratch_types=[plgpu.Barrier()]
    ```

    ## Use instead

    ```python
    scratch_types=[plgpu.Barrier(orders_tensor_core=True)]
    ```

    ## Fix safety

    Safe: it only adds order. The barrier is found by its parameter's place among the scratch that is declared, or
    because it is the only one in the file. What a function of the file makes is changed there, if that is called once.
    """

    code = "MGF502"
    name = "barrier-orders-tensor-core"
    jax = _ALL
    signatures = (Signature("ValueError", r"^MMA barrier must have orders_tensor_core set to True"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate, for the one barrier that it can be."""
        names = Names(source)
        barriers = _barriers_of(names, failure) or [_only_barrier(names)]
        new = keyword(_ORDERS, "True")
        steps: dict[ast.Call, list[Step]] = {}
        for barrier in barriers:
            is_given = _value(barrier, _ORDERS) is not None
            steps[barrier] = [functools.partial(replaced if is_given else with_argument, new=new)]
        return [_candidate(names, "Let the barrier order the tensor core's accesses", steps)]


def _only_barrier(names: Names) -> ast.Call:
    made = [call for call in names.nodes(ast.Call) if _is_barrier(names, call)]
    made = [call for call in made if not _is_true(_value(call, _ORDERS))]
    if len(made) != 1:
        raise NoFix("which of the file's barriers it is, is not known")
    return made[0]


def _is_barrier(names: Names, call: ast.Call) -> bool:
    """Whether a call makes a barrier and can be given what the barrier is given."""
    callee, bound = Callees(names, {f"{_PLGPU}Barrier"}, {_ORDERS}).of(call) or (None, 0)
    return callee is not None and not bound and _ORDERS not in callee.own


def _makes(names: Names, call: ast.Call) -> ast.Call:
    """The call itself, or the one whose value a function of the file returns that is called here alone."""
    made = names.binding(call.func.id, call) if isinstance(call.func, ast.Name) else None
    match made:
        case (
            ast.FunctionDef(body=[*_, ast.Return(value=ast.Call() as returned)])
            | ast.Lambda(body=ast.Call() as returned)
        ) if isinstance(call.func, ast.Name) and len(names.loads(call.func.id)) == 1:
            return returned
    return call


def _barriers_of(names: Names, failure: Failure) -> list[ast.Call]:
    """The declarations of the barrier that the failing call is given, in each kernel that runs it."""
    for argument in (
        a for call in standing_at(names, failure.span, ast.Call) for a in ast.walk(call) if isinstance(a, ast.Name)
    ):
        made = [c if _is_barrier(names, c) else _makes(names, c) for c in allocations(names, argument)]
        found = [c for c in made if _is_barrier(names, c)]
        if found:
            # One that is right in another kernel stays as it is.
            return [c for c in found if not _is_true(_value(c, _ORDERS))] or found
    return []


class ScratchArguments(Rule):
    """`plgpu.SMEM`, `plgpu.GMEM` or `plgpu.TMEM` is given arguments that do not go with that memory.

    ## What it means

    `packed`, `collective` and `layout` describe TMEM only; `transforms` describe SMEM, never TMEM. A TMEM type narrower
    than 32 bits needs `packed` or `layout`, and the two exclude each other. What `plgpu.tcgen05_mma` works on together
    with another block (`collective_axis=`) has to be `collective`.

    ## Why it happens

    The three have one signature, and a declaration is easily copied from one to the other.

    ## Example

    ```python
    scratch_types=[plgpu.SMEM((128, 128), jnp.float32, packed=True), plgpu.TMEM((128, 128), jnp.bfloat16)]
    ```

    ## Use instead

    ```python
    scratch_types=[plgpu.SMEM((128, 128), jnp.float32), plgpu.TMEM((128, 128), jnp.bfloat16, packed=True)]
    ```

    ## Fix safety

    Dropping what a memory does not have is safe, and so is `collective=True` where the operation asks for it. For TMEM,
    `packed=True` for a narrow type, and dropping `layout` where `packed` is given, too, decide how values lie there:
    the first is safe where numbers prove it, of a reference or a golden file, the second is `unsafe`.
    """

    code = "MGF504"
    name = "scratch-arguments"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^packed cannot be specified if layout is specified"),
        Signature("ValueError", r"^packed, collective and layout arguments are only supported"),
        Signature("ValueError", r"^dtypes narrower than 32-bit require either the packed argument"),
        Signature("ValueError", r"^transforms are not supported for TMEM"),
        Signature("ValueError", r"^(Accumulator|LHS) Ref must be collective if collective_axis is set"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate, for the allocation that the error comes from."""
        names = Names(source)
        if "must be collective" in failure.message:
            operands = _operands(names, failure, 0 if failure.message.startswith("Accumulator") else 1)
            share = functools.partial(with_argument, new=keyword("collective", "True"))
            changes: dict[ast.Call, list[Step]] = {operand: [share] for operand in operands}
            return [_candidate(names, "Let the blocks of a cluster share the operand", changes)]
        call = _allocation(names, failure)
        unsafe = Applicability.UNSAFE
        match failure.message.split()[0].rstrip(","):
            case "dtypes":
                add = functools.partial(with_argument, new=keyword("packed", "True"))
                return [replace(_candidate(names, "Pack the narrow type", {call: [add]}), needs_oracle=True)]
            case "transforms":
                drop, level = ["transforms"], Applicability.SAFE
            case _ if "only supported" in failure.message:
                drop, level = ["packed", "collective", "layout"], Applicability.SAFE
            case _:
                drop, level = ["layout"], unsafe
        drop = [name for name in drop if _value(call, name) is not None]
        if not drop:
            raise NoFix(f"the arguments of the allocation at line {call.lineno} are not given by name")
        steps: list[Step] = [functools.partial(without_keyword, name=name) for name in drop]
        return [_candidate(names, f"Drop {', '.join(drop)}, which that memory does not have", {call: steps}, level)]


def _operands(names: Names, failure: Failure, place: int) -> list[ast.Call]:
    """Where an operand of the failing call is declared, in TMEM. Raises NoFix."""
    for call in standing_at(names, failure.span, ast.Call):
        made = allocations(names, call.args[place]) if len(call.args) > place else []
        bare = [c for c in made if _value(c, "collective") is None]
        found = [c for c in bare if public(names.resolve(c.func)) == f"{_PLGPU}TMEM"]
        if found:
            return found
    raise NoFix("by hand: declare the operand with plgpu.TMEM(..., collective=True)")


RULES = (ThreadsAndGridNames(), BarrierOrdersTensorCore(), ScratchArguments())


def _allocation(names: Names, failure: Failure) -> ast.Call:
    for call in standing_at(names, failure.span, ast.Call):
        if public(names.resolve(call.func)) in _MEMORIES:
            return call
    raise NoFix("the allocation is not one that is written out in this file")


def _declaration(names: Names, failure: Failure, arguments: tuple[str, ...]) -> ast.Call:
    """The call that the error comes from, with one of those arguments. Raises NoFix."""
    span = failure.span
    found = [
        call
        for call in names.nodes(ast.Call)
        if span is not None
        and span.path == names.source.path
        and call.lineno <= span.line <= (call.end_lineno or call.lineno)
        and any(k.arg in arguments for k in call.keywords)
    ]
    if not found:
        raise NoFix("the arguments of the kernel's declaration are not written out where it is made")
    return found[-1]


def _candidate(
    names: Names, title: str, changes: dict[ast.Call, list[Step]], level: Applicability = Applicability.SAFE
) -> Candidate:
    try:
        edits = tuple(spliced(names, {call: functools.partial(_all, steps) for call, steps in changes.items()}))
    except SourceError as e:
        raise NoFix(str(e)) from e
    return Candidate(title, edits, level)


def _all(steps: Iterable[Step], call: cst.Call) -> cst.Call:
    for step in steps:
        call = step(call)
    return call


def _value(call: ast.Call, argument: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == argument), None)


def _constant(names: Names, value: ast.expr | None) -> ast.expr | None:
    """What an argument is: the tuple that a name stands for, where it has no other value."""
    made = names.binding(value.id, value) if isinstance(value, ast.Name) else None
    return made if isinstance(made, ast.Tuple) else value


def _is_one(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == 1


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _texts(value: ast.expr | None) -> list[str] | None:
    """The names written out in a tuple, none where there is no tuple, None where that is not known."""
    if value is None:
        return []
    if not isinstance(value, ast.Tuple | ast.List):
        return None
    found = [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return found if len(found) == len(value.elts) else None
