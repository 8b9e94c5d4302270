"""Values whose layout JAX does not find by itself, or does not store: MGF701 and MGF702."""

import ast
import itertools
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import is_pure

from .allocations import allocations
from .imports import Imports
from .places import standing_at
from .store_calls import opened, place

_MODULE = "jax.experimental.pallas.mosaic_gpu"
#: How many elements a thread has side by side; JAX chooses by their size.
_VECTORS = (2, 4, 1, 8)
#: More of them than this are not tried one after the other.
_MOST = 6
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
        call = next(iter(standing_at(names, failure.span, ast.Call)), None)
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
    """The shape of an iota as text, which then stands there twice. Raises NoFix."""
    if not is_pure(names, call):
        raise NoFix(_BY_HAND)
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


class UnoptimizedTransfer(Rule):
    """An array is loaded from GMEM or stored to it in a layout for which JAX has no fast way to do so.

    ## What it means

    From JAX 0.12.0 on `ref[...]` is refused where threads would read or write less than whole sectors of 32 bytes, with
    a `TransferPlanDerivationError`.

    ## Why it happens

    Mostly the result of a `wgmma`, which has a layout of its own, is converted to a type narrower than 32 bits and
    stored right away, or joined with an array of such a type.

    ## Example

    ```python
    o_ref[...] = (acc[...] + bias_ref[...]).astype(jnp.bfloat16)
    ```

    ## Use instead

    ```python
    bias = plgpu.load(bias_ref, optimized=False)
    plgpu.store(o_ref, (acc[...] + bias).astype(jnp.bfloat16), optimized=False)
    ```

    What is faster: by way of SMEM, with `plgpu.copy_gmem_to_smem` or `plgpu.copy_smem_to_gmem`.

    ## Fix safety

    Safe where numbers can be compared: the same values are transferred, as JAX up to 0.11 did it, in more transactions.
    """

    code = "MGF702"
    name = "unoptimized-transfer"
    jax = "0.12.0 and newer"
    signatures = (
        Signature("TransferPlanDerivationError", r"^GMEM transfer does not access a whole number of complete"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for the failing transfer, or for each that it may be, and for all of those. Raises NoFix."""
        names = Names(source)
        found = _transfers(names, failure)
        if not found:
            raise NoFix("by hand: plgpu.load(ref, optimized=False), plgpu.store(ref, value, optimized=False), or SMEM")
        imports = Imports(names)
        module = imports.name(_MODULE)
        for group in [*([node] for node in found[:_MOST]), *([found] if len(found) > 1 else [])]:
            what = "all of them" if len(group) > 1 else f"`{source.segment(group[0])}` at line {group[0].lineno}"
            yield Candidate(
                title=f"Do not ask for a fast transfer of {what}",
                edits=(*imports.edits, *(edit for node in group for edit in _transferred(names, module, node))),
                needs_oracle=True,
                cost="more and smaller transactions; by way of SMEM it is faster",
            )


def _transfers(names: Names, failure: Failure) -> list[ast.Subscript]:
    """What is loaded or stored where JAX says, or all that the kernel does of its parameters where it does not."""
    items = names.nodes(ast.Subscript)
    inside = (n for n in items if any(getattr(outer, "name", "") == failure.kernel for outer in names.ancestors(n)))
    exact = standing_at(names, failure.span, ast.Subscript)
    found = [node for node in exact or inside if _is_transfer(names, node)]
    return sorted(found, key=lambda n: (isinstance(n.ctx, ast.Load), n.lineno, n.col_offset))


def _is_transfer(names: Names, node: ast.Subscript) -> bool:
    """Whether ``node`` is a plain load of a parameter that is no scratch, or all that a statement stores to."""
    if not isinstance(node.value, ast.Name) or not isinstance(names.binding(node.value.id, node), ast.arg):
        return False
    if allocations(names, node.value):
        return False
    parent = names.parents[node]
    return isinstance(node.ctx, ast.Load) or (isinstance(parent, ast.Assign) and parent.targets == [node])


def _transferred(names: Names, module: str, node: ast.Subscript) -> Iterator[Edit]:
    source, statement = names.source, names.parents[node]
    start, end = source.bounds(node)
    if isinstance(node.ctx, ast.Load):
        yield Edit(start, end, f"{module}.load({place(source, node)}, optimized=False)")
    elif isinstance(statement, ast.Assign):
        yield opened(source, statement, node, f"{module}.store")
        _, end = source.bounds(statement)
        yield Edit(end, end, ", optimized=False)")


RULES = (IotaLayout(), UnoptimizedTransfer())
