"""What a file calls the modules that new code needs, and the imports that it lacks."""

import ast
import re

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit
from mgpu_fix.source import Names

#: how kernel authors import them
_USUAL = {
    "jax.experimental.pallas": ("pl", "from jax.experimental import pallas as pl"),
    "jax.experimental.mosaic.gpu": ("mgpu", "from jax.experimental.mosaic import gpu as mgpu"),
    "jax.experimental.pallas.mosaic_gpu": ("plgpu", "from jax.experimental.pallas import mosaic_gpu as plgpu"),
    "jax.lax": ("lax", "from jax import lax"),
    "jax.numpy": ("jnp", "import jax.numpy as jnp"),
    "jaxlib.mlir.dialects.memref": ("memref", "from jaxlib.mlir.dialects import memref"),
    "jaxlib.mlir.ir": ("ir", "from jaxlib.mlir import ir"),
}


class Imports:
    """Names for modules in one file; ``edits`` are the imports that had to be added."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.edits: list[Edit] = []
        self._added: set[str] = set()

    def name(self, dotted: str) -> str:
        """What the file calls a module everywhere. Raises NoFix where a new name for it would clash."""
        tree = self.names.source.tree
        for name, bound in self.names.members(tree).items():
            match bound:
                case [ast.alias() as alias] if self.names.imported(alias) == dotted and self._is_free(name, tree):
                    return name
        name, statement = _USUAL[dotted]
        if name not in self._added:
            if name in self.names.members(tree) or not self._is_free(name, tree):
                raise NoFix(f"the file has no name for {dotted}, and `{name}` stands for something else")
            self._added.add(name)
            self._add(self._import(statement))
        return name

    def _add(self, new: Edit) -> None:
        """Imports that go to the same place are one edit."""
        same = [edit for edit in self.edits if edit.start == new.start]
        lines = sorted("".join(edit.new for edit in (*same, new)).splitlines(keepends=True))
        self.edits = [edit for edit in self.edits if edit not in same] + [Edit(new.start, new.end, "".join(lines))]

    def _is_free(self, name: str, tree: ast.Module) -> bool:
        """Whether no function gives ``name`` a meaning of its own."""
        others = [n for n in self.names.nodes(ast.Name) if n.id == name and self.names.home(name, n) is not tree]
        return not others and not any(a.arg == name for a in self.names.nodes(ast.arg))

    def _import(self, statement: str) -> Edit:
        """The import on a line of its own, before the first of the same package at the top of the file."""
        source = self.names.source
        jax = [s for s in source.tree.body if re.match(r"(from|import) jax\b", source.segment(s))]
        same = [s for s in jax if source.segment(s).startswith(statement.partition(" ")[0])] or jax
        if not same:
            raise NoFix(f"there is no place for `{statement}`")
        last = next((s for s in same if source.segment(s) > statement), None)
        line = last.lineno if last else (same[-1].end_lineno or 0) + 1
        at = source.starts[line - 1] if line <= len(source.starts) else len(source.text)
        return Edit(at, at, statement + source.newline)
