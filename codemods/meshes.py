"""The names that a file gives to axes of meshes, and asks for."""

import ast
from collections.abc import Collection

from mgpu_fix.source import Names

from .callees import reached

#: Keywords of calls in a kernel that name axes of its mesh.
_AXES = ("axis_name", "collective_axes", "thread_axis", "wg_axis")


def asked_axes(names: Names, among: Collection[ast.AST] | None = None) -> list[str]:
    """The axes that kernels of the file ask for, by their index or size or in calls; ``among`` are the nodes to look
    at, all of the file if it is None."""
    return list(dict.fromkeys(text.value for text in _asked(names, among) if isinstance(text.value, str)))


def _asked(names: Names, among: Collection[ast.AST] | None = None) -> list[ast.Constant]:
    calls = [c for c in names.nodes(ast.Call) if _is_place(names, c)]
    values: list[tuple[ast.AST, ast.expr]] = [(c, c.args[0]) for c in calls if c.args]
    values += [(k, k.value) for k in names.nodes(ast.keyword) if k.arg in _AXES]
    nodes = (node for asking, value in values if among is None or asking in among for node in ast.walk(value))
    return [n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _is_place(names: Names, call: ast.Call) -> bool:
    return names.resolve(call.func) in ("jax.lax.axis_index", "jax.lax.axis_size")


def tells_places(names: Names, maker: ast.Call) -> bool:
    """Whether a kernel may ask for its place along the axis of its threads: by that name, or by one not written out."""
    mine = _of_kernel(names, maker)
    name = next((k.value for k in maker.keywords if k.arg == "thread_name"), None)
    asked = [c.args[0] for c in names.nodes(ast.Call) if c.args and _is_place(names, c) and (not mine or c in mine)]
    others = isinstance(name, ast.Constant) and all(
        isinstance(a, ast.Constant) and a.value != name.value for a in asked
    )
    return bool(asked) and not others


def unnamed_axes(names: Names, maker: ast.Call) -> list[str]:
    """The axes that the kernel which ``maker`` declares asks for and that are texts nowhere else in the file, where
    they could name an axis of another mesh, or of the devices."""
    asked = {id(text) for text in _asked(names)}
    elsewhere = {text.value for text in names.nodes(ast.Constant) if id(text) not in asked}
    return [name for name in asked_axes(names, _of_kernel(names, maker) or None) if name not in elsewhere]


def _of_kernel(names: Names, maker: ast.Call) -> set[ast.AST]:
    """All that stands in the body of a kernel and in the functions that it names; empty where it is not known."""
    around = [maker, *names.ancestors(maker)]
    decorated = [f for f in around if isinstance(f, ast.FunctionDef) and any(d in around for d in f.decorator_list)]
    given = (names.binding(a.id, a) if isinstance(a, ast.Name) else a for a in maker.args[:1])
    return reached(names, decorated[:1] or given)


def declared_axes(names: Names) -> set[str]:
    """The axes that the file names."""
    given_names = [k.value for k in names.nodes(ast.keyword) if (k.arg or "").endswith(("_names", "thread_name"))]
    return {
        node.value
        for value in given_names
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def quoted(names: Names, text: str) -> str:
    """A text in the kind of quotes that the file prefers."""
    single = names.source.text.count("'") > 2 * names.source.text.count('"')
    return f"'{text}'" if single else f'"{text}"'
