"""MGF908: warp-level regions opened with ``pl.core_map``."""

import ast
from collections.abc import Iterator, Sequence

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names
from mgpu_fix.versions import Window

from ..callees import public
from ..imports import Imports
from ..stores import unused
from .rules import Change, DriftRule, upgrade

_PLGPU = "jax.experimental.pallas.mosaic_gpu"
_CORE_MAP = "jax.experimental.pallas.core_map"


class CoreMapOverWarps(DriftRule):
    """A warp-level region is opened with `pl.core_map`, which newer JAX warns of.

    ## What it means

    `pl.core_map` is deprecated from JAX 0.11.2 on. Its warning speaks of `pl.kernel`, but inside a kernel, over the
    warps of a warpgroup, `plgpu.warp_map` stands for it.

    ## Why it happens

    `plgpu.warp_map`, in JAX from 0.10.0 on, needs no mesh and gives the body the warp's number.

    ## Example

    ```python
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _():
        warp_id = lax.axis_index("warp")
    ```

    ## Use instead

    ```python
    @plgpu.warp_map
    def _(warp_id):
        ...
    ```

    ## Fix safety

    Safe: the same region. Left alone where the axis' name is used other than for the warp's number, or outside of the
    region's own text, and where `pl.core_map` is given more than the mesh.
    """

    code = "MGF908"
    name = "core-map-over-warps"
    jax = "0.11.2 and newer"
    kinds = ("warps",)
    nothing = "no pl.core_map over a plgpu.WarpMesh was found in this file"
    signatures = (Signature("DeprecationWarning", r"^jax\.experimental\.pallas\.core_map is deprecated"),)

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for all regions of the file."""
        for change in known:
            if "WarpMesh" in names.source.text:
                regions = [f for f in names.nodes(ast.FunctionDef) if any(_mesh(names, d) for d in f.decorator_list)]
                yield from upgrade(names, change, window, regions, lambda found: _rewritten(names, found))


RULES = (CoreMapOverWarps(),)


def _mesh(names: Names, decorator: ast.expr) -> ast.Call | None:
    """The ``plgpu.WarpMesh(...)`` that a ``pl.core_map`` is over."""
    if not isinstance(decorator, ast.Call) or public(names.resolve(decorator.func)) != _CORE_MAP:
        return None
    mesh = decorator.args[0] if decorator.args else None
    if isinstance(mesh, ast.Name):
        bound = names.binding(mesh.id, mesh)
        mesh = bound if isinstance(bound, ast.expr) else None
    is_warps = isinstance(mesh, ast.Call) and public(names.resolve(mesh.func)) == f"{_PLGPU}.WarpMesh"
    return mesh if is_warps and isinstance(mesh, ast.Call) else None


def _rewritten(names: Names, regions: Sequence[ast.FunctionDef]) -> Iterator[Edit]:
    imports = Imports(names)
    meshes: list[ast.Call] = []
    for region in regions:
        decorator = region.decorator_list[-1]
        mesh = _mesh(names, decorator)
        if mesh is None:
            raise NoFix(f"the region at line {region.lineno} has another decorator")
        assert isinstance(decorator, ast.Call)
        if len(decorator.args) + len(decorator.keywords) > 1:
            raise NoFix(f"pl.core_map at line {decorator.lineno} is given more than the mesh")
        yield Edit(*names.source.bounds(decorator), f"{imports.name(_PLGPU)}.warp_map")
        yield from _numbered(names, region, _axis(mesh))
        if mesh is not decorator.args[0]:
            meshes.append(mesh)
    yield from imports.edits
    yield from _unused_meshes(names, meshes, regions)


def _axis(mesh: ast.Call) -> str:
    values = [*mesh.args, *(k.value for k in mesh.keywords if k.arg == "axis_name")]
    if len(values) == 1 and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
        return values[0].value
    raise NoFix(f"the name of the warps' axis at line {mesh.lineno} is not written out")


def _numbered(names: Names, region: ast.FunctionDef, axis: str) -> Iterator[Edit]:
    """The region's body with the warp's number as its parameter."""
    source, taken = names.source, region.args
    if taken.args or taken.posonlyargs or taken.vararg or taken.kwonlyargs or taken.kwarg:
        raise NoFix(f"the region at line {region.lineno} takes parameters")
    inside = list(ast.walk(region))
    asked = [n for n in inside if isinstance(n, ast.Call) and _asks(names, n, axis)]
    elsewhere = [n for n in names.nodes(ast.Constant) if n.value == axis and not any(n in a.args for a in asked)]
    meshes = [n for n in elsewhere if _names_mesh(names, n)]
    others = [n for n in elsewhere if n not in meshes and not _in_other_region(names, n, region)]
    if others:
        raise NoFix(f'the axis "{axis}" is also used at line {others[0].lineno}')
    first = region.body[0]
    name = unused("warp_id", source.tree)
    rest = asked
    if isinstance(first, ast.Assign) and first.value in asked and isinstance(first.targets[0], ast.Name):
        target = first.targets[0]
        if len(first.targets) == 1 and len(names.members(region).get(target.id, ())) == 1 and len(region.body) > 1:
            name, rest = target.id, [call for call in asked if call is not first.value]
            start = source.starts[first.lineno - 1]
            end = source.starts[first.end_lineno or first.lineno]
            if source.text[start:end].strip() != source.segment(first):
                raise NoFix(f"line {first.lineno} holds more than the warp's number")
            yield Edit(start, end, "")
    yield from (Edit(*source.bounds(call), name) for call in rest)
    opening = source.text.index("(", source.offset(region.lineno, region.col_offset))
    yield Edit(opening + 1, opening + 1, name)


def _asks(names: Names, node: ast.AST, axis: str) -> bool:
    """Whether a node is ``lax.axis_index(axis)``."""
    match node:
        case ast.Call(func=func, args=[ast.Constant(value=value)], keywords=[]):
            return value == axis and names.resolve(func) == "jax.lax.axis_index"
    return False


def _names_mesh(names: Names, text: ast.Constant) -> bool:
    parent = names.parents[text]
    call = names.parents[parent] if isinstance(parent, ast.keyword) else parent
    return isinstance(call, ast.Call) and public(names.resolve(call.func)) == f"{_PLGPU}.WarpMesh"


def _in_other_region(names: Names, node: ast.AST, region: ast.FunctionDef) -> bool:
    """Whether a node lies in a region of its own, which is rewritten or refused by itself."""
    for outer in names.ancestors(node):
        if outer is region:
            return False
        if isinstance(outer, ast.FunctionDef) and any(_mesh(names, d) for d in outer.decorator_list):
            return True
    return False


def _unused_meshes(names: Names, meshes: Sequence[ast.Call], regions: Sequence[ast.FunctionDef]) -> Iterator[Edit]:
    """The assignments of meshes that nothing uses any more."""
    decorators = {d for region in regions for d in region.decorator_list}
    for mesh in dict.fromkeys(meshes):
        statement = names.parents[mesh]
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        target = statement.targets[0]
        uses = names.uses(target.id, names.home(target.id, target) or statement)
        source = names.source
        if all(names.parents[use] in decorators for use in uses) and len(statement.targets) == 1:
            start = source.starts[statement.lineno - 1]
            end = source.starts[statement.end_lineno or statement.lineno]
            if source.text[start:end].strip() == source.segment(statement):
                yield Edit(start, end, "")
