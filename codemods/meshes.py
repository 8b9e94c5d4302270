"""The names that a file gives to axes of meshes, and asks for."""

import ast

from mgpu_fix.source import Names

#: Keywords of calls in a kernel that name axes of its mesh.
_AXES = ("axis_name", "collective_axes", "thread_axis", "wg_axis")


def asked_axes(names: Names) -> list[str]:
    """The axes that kernels of the file ask for, by their index or size or in calls."""
    calls = [c for c in names.nodes(ast.Call) if names.resolve(c.func) in ("jax.lax.axis_index", "jax.lax.axis_size")]
    values = [*(c.args[0] for c in calls if c.args), *(k.value for k in names.nodes(ast.keyword) if k.arg in _AXES)]
    nodes = (node for value in values for node in ast.walk(value))
    found = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return list(dict.fromkeys(found))


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
