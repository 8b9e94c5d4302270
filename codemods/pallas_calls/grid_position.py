"""MGF905: ``pl.program_id`` and ``pl.num_programs`` in kernels over a mesh; where kernels ask for their place."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.names import FunctionNode

from ..callbacks import applied, given
from ..callees import Callees, public
from ..imports import Imports

#: what asks for a place in a grid, and what does so over a mesh
_OVER_MESH = {
    "jax.experimental.pallas.program_id": "axis_index",
    "jax.experimental.pallas.num_programs": "axis_size",
}
_KERNELS = ("jax.experimental.pallas.mosaic_gpu.kernel", "jax.experimental.pallas.kernel")
_PALLAS_CALL = "jax.experimental.pallas.pallas_call"
_MESH = "jax.experimental.pallas.mosaic_gpu.Mesh"


class ProgramIdOverMesh(Rule):
    """A kernel over a mesh asks for its place with `pl.program_id` or `pl.num_programs`.

    ## What it means

    JAX lowers it for the GPU (newer versions with a warning), and nothing fails there. Its GPU interpreter gives it a
    wrong value, though, so that the numbers of such a kernel prove nothing: neither that it is right, nor that another
    fix keeps it right.

    ## Why it happens

    `pl.program_id` belongs to the grid of `pl.pallas_call`. The grid of `plgpu.kernel` and `pl.kernel` is a mesh, whose
    axes have names.

    ## Example

    ```python
    @plgpu.kernel(out_type=out, grid=(2,), grid_names=("g",))
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[i] = x_ref[i] * 2
    ```

    ## Use instead

    ```python
    @plgpu.kernel(out_type=out, grid=(2,), grid_names=("g",))
    def kernel(x_ref, o_ref):
        i = lax.axis_index("g")
        o_ref[i] = x_ref[i] * 2
    ```

    and `lax.axis_size("g")` for `pl.num_programs(0)`.

    ## Fix safety

    Safe: JAX lowers both to the same index of the block. It is proven by lowering only, since the numbers of the
    original are those that cannot be trusted; those of the result can be. All places of the kernel, and of functions
    in the file that it calls, change together. Nothing is changed where the names of the grid are not written in the
    file, where kernels with other names share the function, or others than those over a mesh, and in clusters, in which
    the two differ.
    """

    code = "MGF905"
    name = "program-id-over-mesh"
    jax = "0.10.2 to 0.12.0"
    signatures = (Signature("UnreliableGridPosition", r"in a kernel over a mesh: JAX lowers it"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One: every place in the kernels of that name, by the names of their axes."""
        names = Names(source)
        kernels = [(body, reached(names, body), call) for body, call in _kernels(names)]
        edits: dict[Edit, None] = {}
        imports = Imports(names)
        for body, functions, _ in kernels:
            for function in functions if getattr(body, "name", "<lambda>") == failure.kernel else ():
                asked = list(positions(names, function))
                if asked:
                    for caller in functions:
                        _check_only_over_meshes(names, caller, kernels)
                    axes = {tuple(_grid_names(names, call)) for _, others, call in kernels if function in others}
                    if len(axes) > 1:
                        raise NoFix(
                            f"kernels whose grids have other names share the function at line {function.lineno}"
                        )
                    [named] = axes
                    edits |= {Edit(*source.bounds(c), by_name(names, c, named, imports)): None for c in asked}
        if not edits:
            raise NoFix("where the kernel gets its grid is not written in this file; use lax.axis_index with its name")
        return [Candidate("Ask for the place in the grid by the name of its axis", (*edits, *imports.edits))]


RULES = (ProgramIdOverMesh(),)


def _check_only_over_meshes(
    names: Names, function: FunctionNode, kernels: Sequence[tuple[FunctionNode, list[FunctionNode], ast.Call]]
) -> None:
    """Raises NoFix where a function is also used by what is no kernel over a mesh that the file declares."""
    mine = {id(other) for _, others, _ in kernels for other in others}
    bodies = {id(body) for body, _, _ in kernels}
    for use in names.uses(function.name, names.scope(function)) if isinstance(function, ast.FunctionDef) else ():
        around = [*names.ancestors(use)]
        calls = [public(names.resolve(n.func)) for n in around if isinstance(n, ast.Call)]
        inside = any(id(outer) in mine for outer in around)
        if _PALLAS_CALL in calls or not (inside or id(function) in bodies):
            raise NoFix(f"the function at line {function.lineno} is also used at line {use.lineno}")


def positions(names: Names, function: ast.AST) -> Iterator[ast.Call]:
    """The calls in a function that ask for a place in a grid, or for the size of one."""
    for call in names.nodes(ast.Call):
        if public(names.resolve(call.func)) in _OVER_MESH and function in names.ancestors(call):
            yield call


def axis(call: ast.Call) -> int:
    """Which axis a call asks about. Raises NoFix."""
    match call:
        case ast.Call(args=[ast.Constant(value=int(number))], keywords=[]):
            return number
        case ast.Call(args=[], keywords=[ast.keyword(arg="axis", value=ast.Constant(value=int(number)))]):
            return number
    raise NoFix(f"which axis is asked for at line {call.lineno} is not written out")


def asks_for_size(names: Names, call: ast.Call) -> bool:
    """Whether it is how long the axis is."""
    return _OVER_MESH[public(names.resolve(call.func))] == "axis_size"


def by_name(names: Names, call: ast.Call, axes: Sequence[str], imports: Imports) -> str:
    """What asks for the place by the source text of an axis' name. Raises NoFix."""
    number = axis(call)
    if not 0 <= number < len(axes):
        raise NoFix(f"the grid has no axis {number}, which line {call.lineno} asks for")
    return f"{imports.name('jax.lax')}.{_OVER_MESH[public(names.resolve(call.func))]}({axes[number]})"


def reached(names: Names, function: FunctionNode) -> list[FunctionNode]:
    """A function and those of its file that it names, or that these name; not those that are defined in them."""
    found: list[FunctionNode] = [function]
    for outer in found:
        for use in names.nodes(ast.Name):
            if outer in names.ancestors(use):
                used = names.binding(use.id, use)
                if isinstance(used, ast.FunctionDef) and used not in found and outer not in names.ancestors(used):
                    found.append(used)
    return found


def _kernels(names: Names) -> Iterator[tuple[FunctionNode, ast.Call]]:
    """The kernels over a mesh that the file declares: their bodies, and the call that has their grid."""
    callees = Callees(names, _KERNELS, ())
    for call in names.nodes(ast.Call):
        callee, first = callees.of(call) or (None, 0)
        if callee is None:
            continue
        body = next((k.value for k in call.keywords if k.arg == "body"), None)
        try:
            if len(call.args) > first:
                body = call.args[first]
            callbacks = [given(names, body)] if body is not None else list(applied(names, call))
        except NoFix:
            continue
        for callback in callbacks:
            yield callback.function, call


def _grid_names(names: Names, call: ast.Call) -> list[str]:
    """The source texts of the names of a kernel's grid. Raises NoFix."""
    keywords = {k.arg: k.value for k in call.keywords}
    mesh = keywords.get("mesh")
    if isinstance(mesh, ast.Name) and isinstance(bound := names.binding(mesh.id, mesh), ast.Call):
        mesh = bound
    if mesh is not None:
        if not isinstance(mesh, ast.Call) or public(names.resolve(mesh.func)) != _MESH:
            raise NoFix(f"the mesh of the kernel at line {call.lineno} is not made in this file")
        keywords = {k.arg: k.value for k in mesh.keywords}
    if "cluster" in keywords or None in keywords:
        raise NoFix(f"what lax.axis_index gives in the kernel at line {call.lineno} may differ: it may have clusters")
    value: ast.AST | None = keywords.get("grid_names")
    value = names.binding(value.id, value) if isinstance(value, ast.Name) else value
    if not isinstance(value, ast.Tuple | ast.List):
        raise NoFix(f"the names of the grid at line {call.lineno} are not written out")
    texts = []
    for i, element in enumerate(value.elts):
        match element:
            case ast.Constant(value=str()):
                texts.append(names.source.segment(element))
            case ast.Name() if names.home(element.id, element) in (names.source.tree, None):
                texts.append(element.id)
            case _:
                raise NoFix(f"name {i} of the grid at line {call.lineno} is not written out")
    return texts
