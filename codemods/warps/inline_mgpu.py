"""MGF201: an ``inline_mgpu`` function takes or returns an array inside a warp-level region."""

from collections.abc import Iterable

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import Names, SourceFile

from .hoists import WHOLE_WARPGROUP, MovableRegion
from .regions import INLINE, inlines_arrays


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

    or write through an argument of type `plgpu.RefType()`, or reduce inside and return a scalar
    (`plgpu.ShapeDtypeStruct((), dtype, layout=plgpu.Layout.WG_SPLAT)`).

    ## Fix safety

    The region's statements, the function among them, are moved out of it, in place. That is offered where the region
    does nothing but compute, load, store and call such functions, and where the warp's number only picks which warp
    does it. It is safe where every such function returns an array, which only a whole warpgroup can hold; one that
    returns nothing or a number may have been written for a single warp, so then it is unsafe.

    No interpreter runs `inline_mgpu`, so the proof is that the kernel lowers.
    """

    code = "MGF201"
    name = "inline-mgpu-array-return"
    jax = "0.10.2 to 0.12.0"
    signatures = (Signature("ValueError", r"^inline_mgpu in a single-warp context only supports scalar "),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for every region that calls such a function. Raises NoFix."""
        names = Names(source)
        regions = [r for r in failure.facts.regions if any(o.name == INLINE and o.shape for o in r.operations)]
        if not regions:
            raise NoFix("what the warp-level region does is not known")
        safe = failure.facts.barriers and all(map(inlines_arrays, regions))
        edits = []
        for facts in regions:
            region = MovableRegion(source, names, facts)
            region.check_movable(failure.facts.semantics, frozenset({INLINE}))
            edits.append(region.move_out().edit())
        yield Candidate(
            title="Move the inline_mgpu call out of the warp-level region",
            edits=tuple(edits),
            applicability=Applicability.SAFE if safe else Applicability.UNSAFE,
            cost=WHOLE_WARPGROUP,
        )


RULES = (InlineMgpuArrayReturn(),)
