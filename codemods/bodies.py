"""The function that a kernel's entry point calls: its parameters, who else calls it, a name for a lambda."""

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Param, Returned
from mgpu_fix.source import Names
from mgpu_fix.source.flow import own_nodes
from mgpu_fix.source.names import FunctionNode

from .stores import unused

#: Calls that take a body, by the last part of their name: the rest may be the user's own (``self.kernel``).
_ENTRIES = frozenset(
    {"core_map", "emit_pipeline", "emit_pipeline_warp_specialized", "kernel", "mpmd_map", "pallas_call", "warp_map"}
)


@dataclass(frozen=True)
class Parameters:
    """The Refs that a body gets, each with the name it has there. ``added`` are names of new output parameters, which
    go after the parameter ``after``, before ``before``, or, where both are None, after all positional ones."""

    refs: tuple[Param, ...]
    added: tuple[str, ...] = ()
    after: str | None = None
    before: str | None = None

    @classmethod
    def of(cls, names: Names, function: FunctionNode, facts: Returned) -> Self:
        """Names every output. Raises NoFix."""
        refs = facts.params
        missing = [i for i, p in enumerate(refs) if p.role == "output" and p.name is None]
        if missing and function.args.vararg:
            return cls(_unpacked(function, facts))
        for p in refs:
            if p.role == "output" and p.name and len(names.members(function).get(p.name, ())) > 1:
                raise NoFix(f"`{p.name}` is bound again in `{facts.body.name}`")
        if not missing:
            return cls(refs)
        added = _new_names([p.name for p in refs if p.role == "input" and p.name], len(missing), function)
        new = dict(zip(missing, added, strict=True))
        named = tuple(replace(p, name=new.get(i, p.name)) for i, p in enumerate(refs))
        positional = {a.arg for a in (*function.args.posonlyargs, *function.args.args)}
        after = [p.name for p in refs[: missing[0]] if p.name in positional]
        before = [p.name for p in refs[missing[-1] :] if p.name in positional]
        return cls(named, added, after[-1] if after else None, before[0] if before else None)

    def extended(self, old: cst.Parameters) -> cst.Parameters:
        """The parameter list with the new ones. Raises NoFix."""
        if not self.added:
            return old
        anchor = self.after or self.before
        kind = "posonly_params" if any(p.name.value == anchor for p in old.posonly_params) else "params"
        params: list[cst.Param] = list(getattr(old, kind))
        at = next((i for i, p in enumerate(params) if p.name.value == anchor), len(params)) + bool(self.after)
        new = [cst.Param(cst.Name(name)) for name in self.added]
        if at:
            last = params[at - 1]
            if last.default is not None:
                raise NoFix(f"the output parameter has no place after `{last.name.value}`, which has a default")
            new[-1] = new[-1].with_changes(comma=last.comma)
            params[at - 1] = last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
        return old.with_changes(**{kind: [*params[:at], *new, *params[at:]]})


def _unpacked(function: FunctionNode, facts: Returned) -> tuple[Param, ...]:
    """The Refs of a body that takes them as ``*refs``, by the names it unpacks them to. Raises NoFix."""
    assert function.args.vararg
    vararg = function.args.vararg.arg
    count = sum(p.name is None for p in facts.params)
    # A pipeline passes its indices first.
    lengths = (count, count + 1) if facts.entry == "plgpu.emit_pipeline" else (count,)
    for node in own_nodes(function):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=elts) | ast.List(elts=elts)], value=ast.Name(id=name)):
                ids = [e.id for e in elts if isinstance(e, ast.Name)]
                if name == vararg and len(elts) == len(ids) and len(ids) in lengths:
                    found = iter(ids[-count:])
                    return tuple(p if p.name else replace(p, name=next(found)) for p in facts.params)
    raise NoFix(f"`{facts.body.name}` takes its Refs as `*{vararg}` and does not unpack them to names")


def _new_names(inputs: Sequence[str], count: int, function: FunctionNode) -> tuple[str, ...]:
    """Names for new outputs, after the habit of the inputs."""
    suffixes = ("_gmem", "_smem", "_ref") if inputs else ("_ref",)
    suffix = next((s for s in suffixes if not inputs or any(name.endswith(s) for name in inputs)), "")
    for stem in itertools.chain(("o", "out"), (f"out{n}_" for n in itertools.count(1))):
        new = tuple(f"{stem}{i if count > 1 else ''}{suffix}" for i in range(count))
        if all(unused(name, function) == name for name in new):
            return new
    raise AssertionError("some name is free")


def check_callers(names: Names, function: FunctionNode) -> None:
    """Raises NoFix where something but a kernel's entry point needs what ``function`` returns."""
    for use in _uses(names, function):
        for call in _needing(names, use, frozenset()):
            name = use.attr if isinstance(use, ast.Attribute) else use.id
            raise NoFix(f"`{name}` is also called at line {call.lineno}, which needs its value")


def _uses(names: Names, function: FunctionNode) -> Sequence[ast.Name | ast.Attribute]:
    """Uses of the name that a function has, where it is the function's and not that of the kernel made of it."""
    if isinstance(function, ast.Lambda):
        match names.parents[function]:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return names.uses(name, names.scope(function))
        return ()
    if any(_is_entry(decorator) for decorator in function.decorator_list):
        return ()
    scope = names.scope(function)
    if isinstance(scope, ast.ClassDef):
        return [n for n in names.nodes(ast.Attribute) if n.attr == function.name]
    return names.uses(function.name, scope)


def _is_entry(decorator: ast.expr) -> bool:
    """Whether a decorator, called or in ``functools.partial`` or not, makes a kernel."""
    match decorator:
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[ast.expr() as entry, *_]):
            return _is_entry(entry)
        case ast.Call(func=func):
            return _is_entry(func)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _ENTRIES
    return False


def _needing(names: Names, use: ast.expr, seen: frozenset[str]) -> Iterator[ast.expr]:
    """Calls that need the value of the function that ``use`` stands for."""
    parent = names.parents[use]
    call = names.parents[parent] if isinstance(parent, ast.keyword) else parent
    match call:
        case ast.Call() if call.func is use:
            if not isinstance(names.parents[call], ast.Expr):
                yield call
        case ast.Call():
            callee = names.resolve(call.func) or ""
            if callee == "functools.partial" and call.args[:1] == [use]:
                yield from _needing(names, call, seen)
            elif callee.startswith("jax.") and not _is_entry(call.func):
                yield call
        case ast.Assign(targets=[ast.Name(id=name)]) if name not in seen:
            for other in names.uses(name, names.scope(call)):
                yield from _needing(names, other, seen | {name})


def lambda_name(names: Names, function: ast.Lambda, statement: ast.stmt, taken: set[str]) -> tuple[str, bool]:
    """A name for a lambda as a function, and whether its statement does nothing but give it that name. Raises NoFix."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            if statement.value is function:
                return name, True
            base = name
        case ast.Return():
            base = getattr(names.scope(statement), "name", "kernel")
        case _:
            base = "kernel"
    inside = set(ast.walk(function))
    here = set(ast.walk(statement)) - inside
    for node in inside:
        if isinstance(node, ast.Name) and not here.isdisjoint(names.bindings(node.id, node)):
            raise NoFix(f"the lambda uses `{node.id}`, which its own statement binds")
    return unused(f"{base}_body", names.source.tree, taken), False
