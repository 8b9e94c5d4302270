"""Values whose layout JAX does not find by itself, or does not store: MGF701 and MGF702."""

import ast
import itertools
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .imports import Imports
from .places import calls_at
from .store_calls import opened

_MODULE = "jax.experimental.pallas.mosaic_gpu"
#: How many elements a thread has side by side; JAX chooses by their size.
_VECTORS = (2, 4, 1, 8)
#: More stores than this are not tried one after the other.
_MOST = 4
_BY_HAND = "by hand: apply plgpu.layout_cast to it right where it is made"


class IotaLayout(Rule):
    """The layout of an `iota` (`jnp.arange`, `lax.broadcasted_iota`) is not known.

    ## What it means

    With Lane semantics (the default before JAX 0.11.0) every array has its layout, which says what thread holds which
    elements, from what it is computed from. An `iota` is computed from nothing.

    ## Why it happens

    Lane semantics look at nothing but the operation itself. Warpgroup semantics find the layout by themselves.

    ## Example

    ```python
    o_ref[...] = x_ref[...] + lax.iota(jnp.float32, 128)
    ```

    ## Use instead

    ```python
    numbers = plgpu.layout_cast(lax.iota(jnp.float32, 128), plgpu.Layout.WG_STRIDED((128,), vec_size=1))
    o_ref[...] = x_ref[...] + numbers
    ```

    ## Fix safety

    Safe: a layout says where values are, not what they are. Of the vector sizes that the layout may have the first is
    taken that goes with what the `iota` is combined with.
    """

    code = "MGF701"
    name = "iota-layout"
    jax = "0.10.2, and newer with Lane semantics"
    signatures = (Signature("RuntimeError", r"^Failed to infer the output layout of the iota"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for each vector size. Raises NoFix."""
        names = Names(source)
        call = next(iter(calls_at(names, failure)), None)
        if call is None:
            raise NoFix(_BY_HAND)
        shape = _shape(names, call)
        if any(isinstance(n, ast.Call) and _is_cast(names, n) for n in itertools.islice(names.ancestors(call), 2)):
            raise NoFix("by hand: it is cast already, to a layout that JAX does not take")
        imports = Imports(names)
        module = imports.name(_MODULE)
        start, end = source.bounds(call)
        for vector in _VECTORS:
            layout = f", {module}.Layout.WG_STRIDED({shape}, vec_size={vector}))"
            edits = (Edit(start, start, f"{module}.layout_cast("), Edit(end, end, layout))
            yield Candidate(f"Say what layout it has, with vectors of {vector}", (*imports.edits, *edits))


def _is_cast(names: Names, call: ast.Call) -> bool:
    return names.resolve(call.func) == f"{_MODULE}.layout_cast"


def _shape(names: Names, call: ast.Call) -> str:
    """The shape of an iota as text. Raises NoFix."""
    segment = names.source.segment
    named = {k.arg: k.value for k in call.keywords}
    match names.resolve(call.func), call.args:
        case "jax.numpy.arange", [size]:
            return f"({segment(size)},)"
        case "jax.lax.iota", [_, size]:
            return f"({segment(size)},)"
        case "jax.lax.iota", [_] if "size" in named:
            return f"({segment(named['size'])},)"
        case "jax.lax.broadcasted_iota", [_, shape, *_]:
            return segment(shape)
        case "jax.lax.broadcasted_iota", [_] if "shape" in named:
            return segment(named["shape"])
    raise NoFix(_BY_HAND)


class UnoptimizedStore(Rule):
    """A value is stored to GMEM in a layout for which JAX has no fast way to store it.

    ## What it means

    From JAX 0.12.0 on `ref[...] = value` is refused where threads would write less than whole sectors of 32 bytes, with
    a `TransferPlanDerivationError`.

    ## Why it happens

    Mostly the result of a `wgmma`, which has a layout of its own, is converted to a type narrower than 32 bits and
    stored right away.

    ## Example

    ```python
    o_ref[...] = acc[...].astype(jnp.bfloat16)
    ```

    ## Use instead

    ```python
    plgpu.store(o_ref, acc[...].astype(jnp.bfloat16), optimized=False)
    ```

    What is faster: store it to SMEM, `plgpu.commit_smem()`, and copy that with `plgpu.copy_smem_to_gmem`.

    ## Fix safety

    Safe where numbers can be compared: the same values are stored, as JAX up to 0.11 did it, in more transactions.
    """

    code = "MGF702"
    name = "unoptimized-store"
    jax = "0.12.0 and newer"
    signatures = (
        Signature("TransferPlanDerivationError", r"^GMEM transfer does not access a whole number of complete"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for the failing store, or for each that it may be, and for all of those. Raises NoFix."""
        names = Names(source)
        stores = list(_stores(names, failure))
        if not stores:
            raise NoFix("by hand: plgpu.store(ref, value, optimized=False), or by way of SMEM")
        imports = Imports(names)
        function = f"{imports.name(_MODULE)}.store"
        groups = [[store] for store in stores[:_MOST]] + ([stores] if len(stores) > 1 else [])
        for group in groups:
            edits = [edit for statement, target in group for edit in _stored(source, statement, target, function)]
            lines = ", ".join(str(statement.lineno) for statement, _ in group)
            yield Candidate(
                title=f"Store as it is, at line{'s' if len(group) > 1 else ''} {lines}",
                edits=(*imports.edits, *edits),
                needs_oracle=True,
                cost="more and smaller transactions; by way of SMEM it is faster",
            )


def _stores(names: Names, failure: Failure) -> Iterator[tuple[ast.Assign, ast.Subscript]]:
    """The store that the error comes from, or all plain stores of the kernel where JAX does not say which."""
    plain = [
        (statement, target)
        for statement in names.nodes(ast.Assign)
        for target in statement.targets[:1]
        if len(statement.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
    ]
    exact = [(s, t) for s, t in plain if failure.span and names.source.span(t) == failure.span]
    if exact:
        yield from exact
        return
    for statement, target in plain:
        inside = any(getattr(outer, "name", "") == failure.kernel for outer in names.ancestors(statement))
        assert isinstance(target.value, ast.Name)
        if inside and isinstance(names.binding(target.value.id, target), ast.arg):
            yield statement, target


def _stored(source: SourceFile, statement: ast.Assign, target: ast.Subscript, function: str) -> Iterator[Edit]:
    yield opened(source, statement, target, function)
    _, end = source.bounds(statement)
    yield Edit(end, end, ", optimized=False)")


RULES = (IotaLayout(), UnoptimizedStore())
