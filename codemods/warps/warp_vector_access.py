"""MGF101: an array operation inside a warp-level region, where only scalars are possible."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Edit, Failure, Region
from mgpu_fix.source import Names, SourceFile, Splice

from ..captures import operands
from ..imports import Imports
from .hoists import WHOLE_WARPGROUP, MovableRegion
from .primitives import LOADS, STORES
from .regions import INLINE, WarpRegion, inlines_arrays, may_act
from .scalar_identities import failing_scalar, rewritten
from .scalar_loops import ScalarLoops


class WarpVectorAccess(Rule):
    """An array is loaded, computed or stored inside a warp-level region, where only scalars are possible.

    ## What it means

    A body under `plgpu.warp_map`, or under `pl.core_map` with a `plgpu.WarpMesh`, runs once per warp. Mosaic GPU has no
    layout for an array that one warp holds, so each value in there has to be a scalar. Which message you get depends on
    where the array comes from: a load, a primitive such as `exp` or `broadcast_in_dim`, a constant, or the kernel
    around it.

    ## Why it happens

    Warp-level regions are for issuing copies, waiting on barriers and other scalar work. A few scalar operations have
    no warp-level lowering either, such as `-x` (write `x * -1`), `x**2` (write `x * x`) and `jnp.exp`. With Warpgroup
    semantics (the default from JAX 0.11.0) not even a scalar of a Ref in SMEM can be read there.

    ## Example

    ```python
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...])
    ```

    ## Use instead

    Do it outside of the region, with the whole warpgroup:

    ```python
    o_ref[...] = jnp.exp(x_ref[...])
    ```

    or, for Refs in GMEM and simple arithmetic, element by element:

    ```python
    @plgpu.warp_map
    def _(warp_id):
        @pl.when(warp_id == 0)
        def _():
            @pl.loop(0, 128)
            def _(i):
                o_ref[i] = x_ref[i] * 2
    ```

    ## Fix safety

    `loop` is tried first. It is offered for up to 1,024 elements of GMEM (of SMEM too under Lane semantics) where
    every operation has a scalar form, and is only safe where numbers prove it. Where the region reads what it stores,
    it is right only as long as the lanes of the warp run in lockstep, so it is unsafe, and `hoist` comes first.

    `hoist` moves the region's statements out of it, in place. It is offered where the region does nothing but compute,
    load and store, and where the warp's number only picks which warp does it. Then each statement runs once, in the
    same order as before, which is safe. Where every warp does something of its own, it becomes a Python loop over the
    warps. Where the region also waits or copies, it is split in two and what deals with arrays goes between. These two
    are only safe where numbers prove them. Nothing is safe in a kernel with `unsafe_no_auto_barriers`.

    A scalar operation without a warp-level lowering is put in other words (`-x` as `x * -1`, `~x` of an
    integer as `x ^ -1`, `x**2` as `x * x`, `lax.clamp`, `abs`), which is safe where numbers prove it.

    `--prefer hoist` or `--prefer loop` turns the order.
    """

    code = "MGF101"
    name = "warp-vector-access"
    jax = "0.10.2 to 0.12.0"
    choices = ("loop", "hoist")
    signatures = (
        Signature("ValueError", r"^Can only load scalars in warp-level code"),
        Signature("NotImplementedError", r"^Can only store scalars in warp-level lowering"),
        Signature("NotImplementedError", r"^Unimplemented primitive .* user thread semantics PrimitiveSemantics\.Warp"),
        Signature("NotImplementedError", r"^Op memref\.(load|store) does not support warp semantics"),
        Signature("LoweringError", r"^Can only close over scalars and Refs when using (core|mpmd)_map with WarpMesh"),
        Signature("ValueError", r"<lambda> at .*mosaic_gpu.helpers\.py:\d+ captures non-scalar array constants \["),
        Signature("AttributeError", r"^'TypedNdArray' object has no attribute 'type'"),
        # A WGMMA accumulator that a region closes over; newer versions of JAX give no message.
        Signature("NotImplementedError", r"^Mesh type .*WarpMesh.* not supported"),
        Signature("NotImplementedError", r"^$", ("lower",)),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Loops and hoists of every region that fails, see the page. Raises NoFix."""
        names = Names(source)
        # A helper's region, or one in a Python loop, is traced once for each time that it is run.
        regions = [r for r in failure.facts.regions if _fails(r, failure)]
        if not regions:
            raise NoFix("what the warp-level region does is not known")
        if primitive := failing_scalar(failure):
            yield _other_words(source, names, regions, primitive)
            return
        reasons: list[str] = []
        found: list[Candidate] = []
        for make in (_loops, _hoist, _repeat, _split):
            if any(c.name == "hoist" for c in found):
                break
            try:
                # One way does for all regions, since an error that is left hides whether another is gone.
                found.append(make([MovableRegion(source, names, r) for r in regions], failure.facts.semantics))
            except NoFix as e:
                reasons.append(str(e))
        if not found and failure.facts.captures is not None:
            # Once the region reads it off a Ref, there is more that can be done with it.
            yield operands(failure, source)
            return
        if not found:
            raise NoFix("; ".join(dict.fromkeys(reasons)))
        if not failure.facts.barriers:
            # Nothing then keeps one warp from reading what another is still to store.
            found = [replace(c, applicability=Applicability.UNSAFE) for c in found]
        if len(found) > 1 and found[0].name == "loop":
            found[0] = replace(found[0], cost=f"{found[0].cost}; --prefer hoist lets the whole warpgroup do it at once")
        yield from sorted(found, key=lambda c: c.applicability is not Applicability.SAFE)


def _fails(region: Region, failure: Failure) -> bool:
    """Whether a region does what no warp can do."""
    at_fault = any(o.shape or o.outer or failure.span in o.spans for o in region.operations)
    # JAX does not say where it met one of SMEM's numbers.
    numbers = failure.message.startswith("Op memref.") and any(
        o.space == "smem" and o.name in LOADS | STORES for o in region.operations
    )
    return at_fault or numbers or region.span == failure.span


def _other_words(source: SourceFile, names: Names, regions: Sequence[Region], primitive: str) -> Candidate:
    edits = rewritten(source, names, [WarpRegion(source, names, r) for r in regions], primitive)
    return Candidate(
        title=f"Write `{primitive}` with operations that a warp has", edits=_once(edits), name="loop", needs_oracle=True
    )


def _loops(regions: Sequence[WarpRegion], semantics: str) -> Candidate:
    imports = Imports(regions[0].names)
    loops = [ScalarLoops(region, semantics, imports) for region in regions]
    edits: list[Edit] = []
    for one in loops:
        splice = Splice(one.region.source, one.region.function)
        one.change(splice)
        edits.append(splice.edit())
    if len({e.start for e in edits}) < len(set(edits)):
        raise NoFix("the region runs at several shapes")
    return Candidate(
        title="Store element by element in a scalar loop",
        edits=_once([*imports.edits, *edits]),
        applicability=Applicability.SAFE if all(map(_any_order, regions)) else Applicability.UNSAFE,
        name="loop",
        needs_oracle=True,
        cost=f"{sum(one.elements for one in loops)} serial stores by one warp",
    )


def _any_order(region: WarpRegion) -> bool:
    try:
        return region.keeps_order and not region.crossing()
    except NoFix:
        return False


def _hoist(regions: Sequence[MovableRegion], semantics: str) -> Candidate:
    for region in regions:
        pure = inlines_arrays(region.facts) and not may_act(region)
        region.check_movable(semantics, frozenset({INLINE}) if pure else frozenset())
    return Candidate(
        title="Move the array operations out of the warp-level region",
        edits=_once(region.move_out().edit() for region in regions),
        name="hoist",
        cost=WHOLE_WARPGROUP,
    )


def _repeat(regions: Sequence[MovableRegion], semantics: str) -> Candidate:
    for region in regions:
        region.check_repeatable(semantics)
    return Candidate(
        title="Let the whole warpgroup do what each warp does, one after the other",
        edits=_once(region.repeated().edit() for region in regions),
        name="hoist",
        needs_oracle=True,
        cost=WHOLE_WARPGROUP,
    )


def _split(regions: Sequence[MovableRegion], semantics: str) -> Candidate:
    return Candidate(
        title="Split the warp-level region and move the array operations between its parts",
        edits=_once(region.split(semantics).edit() for region in regions),
        name="hoist",
        needs_oracle=True,
        cost=f"{WHOLE_WARPGROUP}; the warps wait for each other where the region is split",
    )


def _once(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    return tuple(dict.fromkeys(edits))


RULES = (WarpVectorAccess(),)
