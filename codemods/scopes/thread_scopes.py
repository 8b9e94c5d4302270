"""Scopes of kernels with several threads, written when they needed no ``collective_axes``."""

import ast
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names
from mgpu_fix.source.flow import own_nodes
from mgpu_fix.source.names import FunctionNode
from mgpu_fix.versions import Window

from ..arguments import keyword, spliced, with_argument
from ..callbacks import given, mapped
from ..callees import public
from ..drift.rules import table, upgrade
from .scope_calls import AXES

_PLGPU = "jax.experimental.pallas.mosaic_gpu."
_RUN_SCOPED = "jax.experimental.pallas.run_scoped"
_SHARED = frozenset(f"{_PLGPU}{name}" for name in ("SMEM", "TMEM", "Barrier", "ClusterBarrier"))
_MESHES = frozenset({f"{_PLGPU}Mesh", f"{_PLGPU}GPUMesh"})


def upgrades(names: Names, window: Window) -> Iterator[Upgrade]:
    """The scopes of a file that the kernel's own body opens for all its threads, where it is old enough for that.

    Until JAX 0.6.1 every scope was shared between the threads of a kernel; since then that is asked for.
    """
    for change in table():
        if change.symbol == _RUN_SCOPED and change.kind == "aged" and change.concerns(window):
            found = dict(_scopes(names))
            yield from upgrade(names, change, window, list(found), lambda calls: _rewritten(names, found, calls))  # noqa: B023


def _rewritten(names: Names, axes: dict[ast.Call, str], calls: Sequence[ast.Call]) -> Iterator[Edit]:
    changes: dict[ast.expr, Callable[[cst.Call], cst.BaseExpression]] = {
        call: functools.partial(with_argument, new=keyword(AXES, axes[call])) for call in calls
    }
    yield from spliced(names, changes)


def _scopes(names: Names) -> Iterator[tuple[ast.Call, str]]:
    """Each scope without axes that allocates only what threads share, with the source of its kernel's thread axis."""
    for body, axis in _bodies(names):
        for node in own_nodes(body):
            if isinstance(node, ast.Call) and public(names.resolve(node.func)) == _RUN_SCOPED:
                allocated = [*node.args[1:], *(k.value for k in node.keywords)]
                if any(k.arg in (AXES, None) for k in node.keywords) or not allocated:
                    continue
                if all(_is_shared(names, value) for value in allocated):
                    yield node, axis


def _bodies(names: Names) -> Iterator[tuple[FunctionNode, str]]:
    """The bodies of kernels with threads, with the source of the text that names their axis."""
    for declared in names.nodes(ast.Call):
        axis = next((k.value for k in declared.keywords if k.arg == "thread_name"), None)
        if not isinstance(axis, ast.Constant) or not isinstance(axis.value, str):
            continue
        dotted = public(names.resolve(declared.func))
        callee = declared.args[0] if dotted == "functools.partial" and declared.args else declared.func
        makers: list[ast.Call] = []
        if dotted in _MESHES:
            with contextlib.suppress(NoFix):
                makers = mapped(names, declared)
        elif public(names.resolve(callee)) == f"{_PLGPU}kernel":
            makers = [declared]
        for maker in makers:
            body = _body(names, maker)
            if body is not None:
                yield body, names.source.segment(axis)


def _body(names: Names, maker: ast.Call) -> FunctionNode | None:
    """What ``maker`` decorates, or is given first; None where that is not a function of this file."""
    parent = names.parents[maker]
    if isinstance(parent, ast.FunctionDef) and maker in parent.decorator_list:
        return parent
    functions = [a for a in maker.args if public(names.resolve(a)) != f"{_PLGPU}kernel"]
    try:
        return given(names, functions[0]).function if functions else None
    except NoFix:
        return None


def _is_shared(names: Names, value: ast.expr) -> bool:
    """Whether everything that a value allocates is what the threads of a kernel share."""
    match value:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return all(_is_shared(names, element) for element in elements)
        case ast.BinOp(op=ast.Mult(), left=left):
            return _is_shared(names, left)
        case ast.Name(id=name) if isinstance(bound := names.binding(name, value), ast.expr):
            return all(_is_shared(names, given) for given in (bound, *_later(names, value)))
        case ast.Constant(value=None):
            return True
        case ast.Call(func=func):
            return public(names.resolve(func)) in _SHARED
    return False


def _later(names: Names, name: ast.Name) -> Iterator[ast.expr]:
    """What is put into the list that a name stands for, and calls that may do so."""
    for use in names.uses(name.id, names.home(name.id, name) or names.source.tree):
        parent = names.parents[use]
        statement = names.parents[parent]
        if isinstance(parent, ast.Subscript) and isinstance(statement, ast.Assign) and parent in statement.targets:
            yield statement.value
        elif isinstance(parent, ast.Attribute):
            yield parent
