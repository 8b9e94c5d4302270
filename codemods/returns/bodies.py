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

from ..stores import unused

#: Calls that take a body, by the last part of their name: the rest may be the user's own (``self.kernel``).
_ENTRIES = frozenset(
    {
        "core_map",
        "emit_pipeline",
        "emit_pipeline_warp_specialized",
        "kernel",
        "mpmd_map",
        "pallas_call",
        "warp_map",
        "when",
    }
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
    lengths = (count, count + 1) if facts.entry.startswith("plgpu.emit_pipeline") else (count,)
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
    """Raises NoFix where something but a kernel's entry point needs, or may need, what ``function`` returns."""
    for use in _uses(names, function):
        for needing in _needing(names, use, frozenset()):
            how, needs = ("called", "needs") if needing.sure else ("used", "may need")
            raise NoFix(f"{_shown(names, use)} is also {how} at line {needing.line}, which {needs} its value")
    for decorator in _decorators(function):
        name = getattr(function, "name", "<lambda>")
        raise NoFix(f"`{name}` is decorated at line {decorator.lineno}, which may need its value")


@dataclass(frozen=True)
class _Needing:
    """A place that needs the value of a function; not ``sure`` where it is only given away there."""

    line: int
    sure: bool


def _decorators(function: FunctionNode) -> list[ast.expr]:
    """Decorators that get the function itself, and not the kernel that another one makes of it."""
    inner: list[ast.expr] = []
    for decorator in reversed([] if isinstance(function, ast.Lambda) else function.decorator_list):
        if _is_entry(decorator):
            break
        if not (isinstance(decorator, ast.Name) and decorator.id in ("staticmethod", "classmethod")):
            inner.append(decorator)
    return inner


def _shown(names: Names, use: ast.expr) -> str:
    match use, names.parents[use]:
        case (ast.Name(id=name) | ast.Attribute(attr=name), _) | (_, ast.Assign(targets=[ast.Name(id=name)])):
            return f"`{name}`"
    return "the lambda"


def _uses(names: Names, function: FunctionNode) -> Sequence[ast.expr]:
    """Uses of a function, where they are its own and not those of the kernel made of it."""
    if isinstance(function, ast.Lambda):
        return [function]
    if any(_is_entry(decorator) for decorator in function.decorator_list):
        return ()
    return _named(names, function.name, names.scope(function))


def _named(names: Names, name: str, scope: ast.AST) -> list[ast.expr]:
    """Uses of what ``scope`` calls ``name``; those of a method or another member of a class are found by name alone."""
    uses: list[ast.expr] = [*names.uses(name, scope)]
    if isinstance(scope, ast.ClassDef):
        attributes = (n for n in names.nodes(ast.Attribute) if n.attr == name and isinstance(n.ctx, ast.Load))
        uses += [n for n in attributes if not (names.resolve(n) or "").startswith("jax.")]
    return uses


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


def _takes_body(names: Names, call: ast.Call) -> bool:
    """Whether a call makes a kernel, by a name of the file's own for an entry point, too."""
    bound = names.binding(call.func.id, call.func) if isinstance(call.func, ast.Name) else None
    dotted = names.resolve(call.func) or ""
    by_alias = dotted.startswith("jax.") and dotted.rpartition(".")[2] in _ENTRIES
    return _is_entry(call) or by_alias or (isinstance(bound, ast.Call) and _is_entry(bound))


def _needing(names: Names, use: ast.expr, seen: frozenset[ast.AST]) -> Iterator[_Needing]:
    """Places that need the value of the function that ``use`` stands for."""
    parent = names.parents[use]
    call = names.parents[parent] if isinstance(parent, ast.keyword) else parent
    match call:
        case ast.Call() if call.func is use:
            if not isinstance(names.parents[call], ast.Expr):
                yield _Needing(call.lineno, sure=True)
        case ast.Call():
            callee = names.resolve(call.func) or ""
            if callee == "functools.partial" and call.args[:1] == [use]:
                yield from _needing(names, call, seen)
            elif callee.startswith("jax.") and not _takes_body(names, call):
                yield _Needing(call.lineno, sure=True)
            elif not _takes_body(names, call) and not _only_passes(names, call, parent, use, seen):
                yield _Needing(use.lineno, sure=False)
        case ast.Assign(targets=[ast.Name() as target]) | ast.AnnAssign(target=ast.Name() as target):
            yield from _of_name(names, target.id, names.home(target.id, target), seen)
        case ast.IfExp() if call.test is not use:
            yield from _needing(names, call, seen)
        case ast.Expr() | ast.Attribute(attr="__name__" | "__qualname__" | "__doc__"):
            pass
        case _:
            yield _Needing(use.lineno, sure=False)


def _of_name(names: Names, name: str, scope: ast.AST | None, seen: frozenset[ast.AST]) -> Iterator[_Needing]:
    """Places that need the value of the function that ``scope`` calls ``name``."""
    for use in _named(names, name, scope) if scope else ():
        if use not in seen:
            yield from _needing(names, use, seen | {use})


def _only_passes(names: Names, call: ast.Call, argument: ast.AST, use: ast.expr, seen: frozenset[ast.AST]) -> bool:
    """Whether a call is one of a function of this file that needs no value of the function ``use``, which it is
    given."""
    function = names.binding(call.func.id, call.func) if isinstance(call.func, ast.Name) else None
    if not isinstance(function, ast.FunctionDef) or any(isinstance(a, ast.Starred) for a in call.args):
        return False
    if not all(_is_jit(names, decorator) for decorator in function.decorator_list):
        return False
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(argument, ast.keyword):
        name = argument.arg if argument.arg in [*positional, *(a.arg for a in function.args.kwonlyargs)] else None
    else:
        name = dict(enumerate(positional)).get(call.args.index(use))
    return name is not None and not any(_of_name(names, name, function, seen))


def _is_jit(names: Names, decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=func, args=args):
            return names.resolve(args[0] if args else func) == "jax.jit"
    return names.resolve(decorator) == "jax.jit"


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
