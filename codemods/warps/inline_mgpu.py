"""MGF201: an ``inline_mgpu`` function takes or returns an array inside a warp-level region."""

from collections.abc import Iterable, Sequence

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Failure, Region
from mgpu_fix.source import Names, SourceFile

from ..imports import Imports
from .hoists import WHOLE_WARPGROUP, MovableRegion
from .inline_elements import InlineRegion, numbered, written
from .regions import INLINE, inlines_arrays, may_act


class InlineMgpuArrayReturn(Rule):
    """A `plgpu.inline_mgpu` function that takes or returns an array is called inside a warp-level region.

    ## What it means

    Under `plgpu.warp_map` (or `pl.core_map` with a `plgpu.WarpMesh`) only scalars go into and come out of
    `plgpu.inline_mgpu`. A `return_type` with a shape other than `()` is refused.

    ## Why it happens

    An array is spread over the registers of a whole warpgroup, by its layout. One warp has no such array.

    ## Example

    ```python
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),), return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, ...))
        def add_one(ctx, ref): ...

        o_ref[...] = add_one(smem)
    ```

    ## Use instead

    Define and call it at warpgroup level; its body and its layouts stay as they are:

    ```python
    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),), return_type=plgpu.ShapeDtypeStruct((128,), jnp.float32, ...))
    def add_one(ctx, ref): ...

    o_ref[...] = add_one(smem)
    ```

    or let one warp do it element by element: store through an argument of type `plgpu.RefType()`,

    ```python
    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(), plgpu.RefType()))
    def add_one(ctx, ref, out_ref):
        @mgpu.fori(mgpu.c(128, ir.IndexType.get()), ())
        def _(i, carry):
            value = mgpu.FragmentedArray.splat(memref.load(ref, [i]), ()) + 1.0
            memref.store(value.registers.item(), out_ref, [i])
            return carry

    add_one(smem, o_ref)
    ```

    or return one number, with `return_type=plgpu.ShapeDtypeStruct((), dtype, layout=plgpu.Layout.WG_SPLAT)`.

    ## Fix safety

    `hoist` comes first. The region's statements, the function among them, are moved out of it, in place. That is
    offered where the region does nothing but compute, load, store and call such functions, and where the warp's number
    only picks which warp does it. It is safe where every such function returns an array, which only a whole warpgroup
    can hold, and does nothing else; one that returns nothing or a number, or that stores, waits or copies, may have
    been written for a single warp, so then it is unsafe.

    `write-to-ref` and `scalar` leave the region as it is, and are unsafe: they write the function anew. Both need a
    function that only makes arrays with `load_strided` of its plain Refs and with `splat`, adds, subtracts, multiplies
    or divides them, and is called in nothing but the form at hand. `write-to-ref` is offered where the result is only
    stored to a Ref that the function does not read. `scalar` is offered where the caller takes `jnp.sum`, `jnp.max` or
    `jnp.min` of up to 256 elements, which are then combined one after the other, or the element at a constant index.
    Functions that do more with the registers, return several values or come out of a factory have no such form that
    can be told from their source.

    No interpreter runs `inline_mgpu`, so the proof is that the kernel lowers. `--prefer` turns the order.
    """

    code = "MGF201"
    name = "inline-mgpu-array-return"
    jax = "0.10.2 to 0.12.0"
    choices = ("hoist", "write-to-ref", "scalar")
    signatures = (Signature("ValueError", r"^inline_mgpu in a single-warp context only supports scalar "),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for every region that calls such a function. Raises NoFix."""
        names = Names(source)
        regions = [r for r in failure.facts.regions if any(o.name == INLINE and o.shape for o in r.operations)]
        if not regions:
            raise NoFix("what the warp-level region does is not known")
        reasons: list[str] = []
        found: list[Candidate] = []
        for make in (_hoisted, _written, _numbered):
            try:
                found.append(make(source, names, regions, failure))
            except NoFix as e:
                reasons.append(str(e))
        if not found:
            raise NoFix("; ".join(dict.fromkeys(reasons)))
        yield from found


def _hoisted(source: SourceFile, names: Names, regions: Sequence[Region], failure: Failure) -> Candidate:
    movable = [MovableRegion(source, names, facts) for facts in regions]
    for region in movable:
        region.check_movable(failure.facts.semantics, frozenset({INLINE}))
    edits = [region.move_out().edit() for region in movable]
    safe = failure.facts.barriers and all(map(inlines_arrays, regions)) and not any(map(may_act, movable))
    return Candidate(
        title="Move the inline_mgpu call out of the warp-level region",
        edits=tuple(edits),
        applicability=Applicability.SAFE if safe else Applicability.UNSAFE,
        name="hoist",
        cost=WHOLE_WARPGROUP,
    )


def _written(source: SourceFile, names: Names, regions: Sequence[Region], failure: Failure) -> Candidate:
    imports = Imports(names)
    edits = [*written([InlineRegion(source, names, facts) for facts in regions], imports)]
    return Candidate(
        title="Store each element through a Ref that is given to the inline_mgpu function",
        edits=(*imports.edits, *edits),
        applicability=Applicability.UNSAFE,
        name="write-to-ref",
        cost="one warp stores the elements one by one",
    )


def _numbered(source: SourceFile, names: Names, regions: Sequence[Region], failure: Failure) -> Candidate:
    imports = Imports(names)
    edits = [*numbered([InlineRegion(source, names, facts) for facts in regions], imports)]
    return Candidate(
        title="Let the inline_mgpu function return the one number that its caller makes of the array",
        edits=(*imports.edits, *edits),
        applicability=Applicability.UNSAFE,
        name="scalar",
        cost="one warp loads the elements one by one",
    )


RULES = (InlineMgpuArrayReturn(),)
