"""MGF902: names of ``pl`` and ``plgpu`` that newer JAX calls otherwise."""

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from mgpu_fix.catalogue import NoFix, Signature
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names
from mgpu_fix.versions import Window

from ..callees import public, short
from ..imports import Imports
from .rules import Change, DriftRule, upgrade

_MODULE = r"jax\.experimental\.(pallas(\.mosaic_gpu)?|mosaic\.gpu)"


class RenamedName(DriftRule):
    """A name of `pl` or `plgpu` that this version of JAX calls otherwise.

    ## What it means

    Pallas is experimental: names come and go with every release. The code was written for an older version of JAX.

    ## Why it happens

    A few of the names that were changed; `mgpu-fix upgrade` knows more:

    | old | new |
    |---|---|
    | `plgpu.GPUCompilerParams`, `plgpu.GPUBlockSpec`, `plgpu.GPUMemorySpace` | without `GPU` |
    | `plgpu.GPUMesh` | `plgpu.Mesh` |
    | `plgpu.Layout.WGMMA_ROW`, `plgpu.Layout.WGMMA_COL` | `plgpu.Layout.WGMMA.reduce(1)`, `.reduce(0)` |

    ## Example

    ```python
    compiler_params=plgpu.GPUCompilerParams()
    ```

    ## Use instead

    ```python
    compiler_params=plgpu.CompilerParams()
    ```

    ## Fix safety

    Safe: the new name stands for the same thing. All uses in the file are renamed in one step, imports too. Names that
    the program asks for under a condition, as in `getattr(plgpu, ...)`, `hasattr` or `except ImportError`, are left
    alone.
    """

    code = "MGF902"
    name = "renamed-name"
    jax = "any"
    kinds = ("name",)
    nothing = "no use of the name was found in this file; look it up in JAX's Pallas changelog"
    signatures = (
        Signature("AttributeError", rf"^module '{_MODULE}' has no attribute '"),
        Signature("AttributeError", r"^(pl|plgpu)\.\w+ was deprecated in JAX .* removed in JAX"),
        Signature("AttributeError", r"^type object '(Layout|TMEMLayout|MemorySpace)' has no attribute '"),
        Signature("ImportError", rf"^cannot import name '\w+' from '{_MODULE}'"),
    )

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for each name of the table that the file uses."""
        for change in known:
            if change.word in names.source.text:
                renamed = functools.partial(_renamed, names, change)
                yield from upgrade(names, change, window, _uses(names, change.symbol), renamed)


RULES = (RenamedName(),)

_Use: TypeAlias = ast.Attribute | ast.Name | ast.alias


def _uses(names: Names, symbol: str) -> Iterator[_Use]:
    """Where a file says a name by itself, and not through a name of its own for it."""
    word = symbol.rpartition(".")[2]
    for attribute in names.attributes(word):
        if public(names.resolve(attribute)) == symbol:
            yield attribute
    for alias in names.nodes(ast.alias):
        if alias.name == word and public(names.imported(alias)) == symbol:
            yield alias
    for name in names.loads(word):
        # Of a star import.
        if names.home(word, name) is None and public(names.resolve(name)) == symbol:
            yield name


def _renamed(names: Names, change: Change, uses: Sequence[_Use]) -> Iterator[Edit]:
    """The new name in place of every use. Raises NoFix."""
    source, imports = names.source, Imports(names)
    module, _, old = change.symbol.rpartition(".")
    tail = change.new.removeprefix(f"{module}.")
    for use in uses:
        start, end = source.bounds(use)
        if tail == change.new:
            if not isinstance(use, ast.Attribute):
                raise NoFix(f"it is imported by its name at line {use.lineno}; import {short(change.new)} there")
            new_module, _, new = change.new.rpartition(".")
            yield Edit(start, end, f"{imports.name(new_module)}.{new}")
        elif not isinstance(use, ast.alias):
            yield Edit(end - len(old), end, tail)
        elif use.asname:
            yield Edit(start, start + len(old), tail) if use.asname != tail else Edit(start, end, tail)
        elif _may_be_called(names, use, tail):
            yield Edit(start, start + len(old), tail)
            yield from (Edit(*source.bounds(load), tail) for load in names.uses(old, names.scope(use)))
        else:
            yield Edit(start, start + len(old), f"{tail} as {old}")
    yield from imports.edits


def _may_be_called(names: Names, alias: ast.alias, new: str) -> bool:
    """Whether what is imported may have the new name in this file, and nobody imports it from here by the old one."""
    scope = names.scope(alias)
    old = alias.name
    if len(names.members(scope)[old]) > 1 or any(n.id == new for n in names.nodes(ast.Name)):
        return False
    if any(new in names.members(s) for s in (scope, *(names.scope(use) for use in names.uses(old, scope)))):
        return False
    exported = old in names.wanted or any(text.value == old for text in names.nodes(ast.Constant))
    return bool(names.uses(old, scope)) and not exported
