"""MGF102: a warp-level region opens another one."""

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure, Region
from mgpu_fix.source import Names, SourceFile, Splice

from .hoists import MovableRegion, opened
from .regions import PALLAS, own_statements

_WARP_MAP = f"{PALLAS}.mosaic_gpu.warp_map"


class NestedWarpMap(Rule):
    """A warp-level region opens another region: a second `warp_map` or `core_map`, or a `run_scoped`.

    ## What it means

    Inside `plgpu.warp_map` (or `pl.core_map` with a `plgpu.WarpMesh`) the kernel is already split into single warps,
    and there is nothing left to split. Memory can only be allocated by the whole warpgroup.

    ## Why it happens

    Mostly a helper with a warp-level region of its own is called from one.

    ## Example

    ```python
    @plgpu.warp_map
    def _(warp_id):
        @plgpu.warp_map
        def _(inner_id):
            o_ref[inner_id] = x_ref[inner_id]
    ```

    ## Use instead

    One region, and `pl.run_scoped` around it rather than in it:

    ```python
    @plgpu.warp_map
    def _(warp_id):
        o_ref[warp_id] = x_ref[warp_id]
    ```

    ## Fix safety

    A `plgpu.warp_map` that decorates a function in the region, and does not ask for the outer warp's number, stays as
    the only region where the outer one does nothing of its own but to pick a warp. Where the outer one also waits or
    copies, the inner function's statements become its own, for the warp that runs them. Both are safe only where
    numbers prove them: what is meant is taken to be that every warp that gets there runs the inner function for all
    four. Regions opened by `pl.core_map` in another are left alone, and so is a `pl.run_scoped`.
    """

    code = "MGF102"
    name = "nested-warp-map"
    jax = "0.10.2 to 0.12.0"
    signatures = (
        Signature(
            "NotImplementedError",
            r"^Unimplemented primitive .*: (core_map|mpmd_map|run_scoped) for .* user thread semantics "
            r"PrimitiveSemantics\.Warp",
        ),
        Signature("LoweringError", r"^Cannot nest (core|mpmd)_map"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate, see the page. Raises NoFix."""
        names = Names(source)
        nests = [*_nests(failure, source, names)]
        if not nests:
            raise NoFix("merge the inner region into the outer one, and put run_scoped around it")
        edits: list[Edit] = []
        for outer, inner in nests:
            try:
                outer.check_movable(failure.facts.semantics)
                edits.append(outer.move_out().edit())
            except NoFix:
                edits.append(_merged(outer, inner))
        yield Candidate("Open one warp-level region instead of two", tuple(dict.fromkeys(edits)), needs_oracle=True)


def _nests(failure: Failure, source: SourceFile, names: Names) -> Iterator[tuple[MovableRegion, ast.FunctionDef]]:
    """The outer regions, with what they do themselves, and the functions that the inner ones run."""
    for facts in failure.facts.regions:
        whole = MovableRegion(source, names, facts)
        for node in ast.walk(whole.function):
            if not isinstance(node, ast.FunctionDef) or node is whole.function:
                continue
            if [names.resolve(d) for d in node.decorator_list] == [_WARP_MAP]:
                yield MovableRegion(source, names, _without(facts, whole, node)), node
                break


def _without(facts: Region, region: MovableRegion, inner: ast.FunctionDef) -> Region:
    """The facts on a region without what the function ``inner`` of it does."""
    first, last = region.source.bounds(inner)
    inside = {id(o) for o, (start, end) in region.operations if first <= start and end <= last}
    return replace(facts, operations=tuple(o for o in facts.operations if id(o) not in inside))


def _merged(outer: MovableRegion, inner: ast.FunctionDef) -> Edit:
    """The statements of ``inner`` in its place, for the outer region's warp. Raises NoFix."""
    names = outer.names
    parameters = outer.function.args.args
    if outer.opening is not outer.function or names.scope(inner) is not outer.function or len(parameters) != 1:
        raise NoFix("the inner region is opened under a condition, or where the warp has no number")
    if [n for n in ast.walk(inner.args) if isinstance(n, ast.arg)] != inner.args.args[:1]:
        raise NoFix("the inner region has parameters of its own")
    [own], [warp] = inner.args.args, parameters
    inside = {n for n in ast.walk(inner) if isinstance(n, ast.Name)}
    if own.arg != warp.arg and any(n.id == warp.arg for n in inside):
        raise NoFix("the inner region asks for the outer warp's number")
    outside = {n.id for n in ast.walk(outer.function) if isinstance(n, ast.Name) and n not in inside}
    bound = set(names.members(inner)) - {own.arg, "_"}
    if bound & outside or len(names.members(inner)[own.arg]) > 1:
        raise NoFix("the inner region binds a name of the outer one")
    if any(isinstance(s, ast.Return | ast.Nonlocal | ast.Global) for s in own_statements(inner)):
        raise NoFix("the inner region returns")
    splice = Splice(outer.source, outer.function, comments=True)
    for use in names.uses(own.arg, inner):
        splice.on(use, functools.partial(_renamed, warp.arg), cst.Name)
    splice.on(inner, opened, cst.FunctionDef)
    return splice.edit()


def _renamed(name: str, old: cst.Name) -> cst.Name:
    return old.with_changes(value=name)


RULES = (NestedWarpMap(),)
