"""MGF901: arguments of ``plgpu.kernel`` and ``pl.kernel`` that newer JAX calls by another name."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceError, SourceFile, Splice
from mgpu_fix.source.names import FunctionNode

from .arguments import Run, in_order, runs, without

RENAMED = {"out_shape": "out_type", "scratch_shapes": "scratch_types"}

#: What becomes of a call's arguments, by their place in the source, or of a key (place 0).
Plan: TypeAlias = Mapping[int, "_Change"]

#: What stands between two arguments, or between a callee and its first one.
_LEAD = re.compile(r"(?:[\s\\)]|#.*)*[,(](?:[\s\\]|#.*)*")


class RenamedArgument(Rule):
    """A kernel is declared with ``out_shape=`` or ``scratch_shapes=``, which newer JAX no longer accepts.

    ## What it means

    `plgpu.kernel` and `pl.kernel` call these arguments `out_type` and `scratch_types` now. JAX's message names neither:
    `plgpu.kernel` passes every keyword that it does not know on to `plgpu.Mesh`, so it is
    `Mesh.__init__() got an unexpected keyword argument 'out_shape'` that you see.

    ## Why it happens

    JAX renamed both arguments, and stopped taking the old names after a time of warnings:

    | | `plgpu.kernel` | `pl.kernel` |
    |---|---|---|
    | 0.10.2 and 0.11.0 | both names, the old one with a warning; giving both is an error | new name only |
    | from 0.11.2 | new name only, and only by keyword | new name only |

    `pl.pallas_call` is not concerned: there the name is still `out_shape`.

    ## Example

    ```python
    @functools.partial(plgpu.kernel, out_shape=jax.ShapeDtypeStruct((128,), jnp.float32))
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    ```

    ## Use instead

    ```python
    @functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    ```

    The output type as second positional argument of `plgpu.kernel` becomes `out_type=`. The new names work from JAX
    0.10.2 on.

    ## Fix safety

    Safe: a name changes, no value does. All calls in the file are renamed in one step, also through
    `functools.partial`, through functions in the same file that pass their keyword arguments on, and in dictionaries
    that are only spread into such calls. Only calls that can be traced to `plgpu.kernel` or `pl.kernel` are touched.
    Where the old and the new name are both given, the old one is dropped if the two are written alike; otherwise
    nothing is changed, as only you can tell which one is meant.
    """

    code = "MGF901"
    name = "renamed-argument"
    jax = "plgpu.kernel: 0.11.2 and newer; pl.kernel: 0.10.1 and newer"
    signatures = (
        Signature("TypeError", r"^Mesh\.__init__\(\) got an unexpected keyword argument '(out_shape|scratch_shapes)'"),
        Signature("TypeError", r"^kernel\(\) got an unexpected keyword argument '(out_shape|scratch_shapes)'"),
        Signature(
            "TypeError",
            r"^kernel\(\) takes from 0 to 1 positional arguments but \d+ (were given|positional arguments \(and)",
        ),
        Signature("ValueError", r"^Cannot specify both (out_shape and out_type|scratch_shapes and scratch_types)"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate that brings every call in the file up to date."""
        names = Names(source)
        plans = _Calls(names).plans()
        if not plans:
            raise NoFix("no call here that passes out_shape or scratch_shapes was traced to plgpu.kernel or pl.kernel")
        try:
            return [Candidate(_title(plans), tuple(_edits(source, names, plans)))]
        except SourceError as e:
            raise NoFix(str(e)) from e


RULES = (RenamedArgument(),)


@dataclass(frozen=True)
class _Change:
    """The new name for ``old``; or ``old`` is dropped, as the new name is given too."""

    old: str
    drop: bool = False

    @property
    def new(self) -> str:
        return RENAMED[self.old]


@dataclass(frozen=True)
class _Entry:
    """Something that, called, hands its keyword arguments to ``plgpu.kernel`` or ``pl.kernel``.

    ``position`` is where it takes the output type positionally, None where it does not or may go on doing so.
    ``own`` are keywords of the old names that it does not hand on, because they are parameters of its own.
    """

    position: int | None = None
    own: frozenset[str] = frozenset()


_ENTRIES = {
    "jax.experimental.pallas.mosaic_gpu.kernel": _Entry(position=1),
    "jax._src.pallas.mosaic_gpu.core.kernel": _Entry(position=1),
    "jax.experimental.pallas.kernel": _Entry(),
    "jax._src.pallas.helpers.kernel": _Entry(),
}


class _Calls:
    """The calls of one file that end in a kernel entry point, and the dictionaries that are spread into them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._entries: dict[tuple[ast.AST, bool], _Entry | None] = {}
        self._spread: dict[ast.expr, bool] = {}

    def plans(self) -> dict[ast.expr, Plan]:
        """What to change in each call or key. Raises NoFix where an old and a new name contradict each other."""
        found: dict[ast.expr, Plan] = {}
        for call in self.names.nodes(ast.Call):
            if call.args or any(keyword.arg in RENAMED for keyword in call.keywords):
                found[call] = _plan(self._arguments(call))
        for text in self.names.nodes(ast.Constant):
            if isinstance(text.value, str) and text.value in RENAMED and self._is_key(text, text.value):
                found[text] = {0: _Change(text.value)}
        return {node: plan for node, plan in found.items() if plan}

    def _arguments(self, call: ast.Call) -> list[tuple[str | None, ast.expr]]:
        """The kernel's name for each argument of ``call`` (None for what does not concern us), in source order."""
        entry, first = self._target(call) or (None, 0)
        if entry is None:
            if not self._is_dict(call) or not self._is_spread(call):
                return []
            entry = _Entry()
        last = len(call.args) - 1
        # What follows could not stay positional, and behind a star nobody knows the place.
        moves = entry.position is not None and entry.position + first == last and not _starred(call)
        arguments: list[tuple[str | None, ast.expr]] = []
        for argument in in_order(call):
            if isinstance(argument, ast.keyword):
                arguments.append((None if argument.arg in entry.own else argument.arg, argument.value))
            else:
                arguments.append(("out_shape" if moves and argument is call.args[last] else None, argument))
        return arguments

    def _target(self, call: ast.Call) -> tuple[_Entry, int] | None:
        """What ``call`` calls, or binds arguments of with ``functools.partial``, and where its arguments begin."""
        first = 1 if call.args and self.names.resolve(call.func) == "functools.partial" else 0
        entry = self._entry(call.args[0] if first else call.func)
        return (entry, first) if entry else None

    def _entry(self, callee: ast.expr) -> _Entry | None:
        """What a callee does with its arguments, None where it does not hand them on to a kernel."""
        known = _ENTRIES.get(self.names.resolve(callee) or "")
        if known:
            return known
        if isinstance(callee, ast.Call):
            entry, first = self._target(callee) or (None, 0)
            bound = len(callee.args) - first
            return replace(entry, position=_shifted(entry.position, bound, callee)) if entry and first else None
        definitions, skip = self._definitions(callee)
        entries = {self._defined(definition, skip) for definition in definitions}
        return entries.pop() if len(entries) == 1 else None

    def _defined(self, definition: ast.AST, skip: bool) -> _Entry | None:
        key = definition, skip
        if key not in self._entries:
            self._entries[key] = None  # what is defined by itself is unknown
            if isinstance(definition, FunctionNode):
                self._entries[key] = self._wrapper(definition, skip)
            elif isinstance(definition, ast.expr):
                self._entries[key] = self._entry(definition)
        return self._entries[key]

    def _wrapper(self, function: FunctionNode, skip: bool) -> _Entry | None:
        """A function that hands its ``**kwargs`` on to a kernel; ``skip`` its first parameter, which is bound."""
        taken = function.args
        if taken.kwarg is None or not self._is_only_spread(taken.kwarg):
            return None
        own = {p.arg for p in (*_positional(function), *taken.kwonlyargs)}
        return _Entry(self._star_position(function, skip), frozenset(own & RENAMED.keys()))

    def _star_position(self, function: FunctionNode, skip: bool) -> int | None:
        """Where the output type stands in a call of a function that hands its ``*args`` on to a kernel."""
        star = function.args.vararg
        uses = self.names.uses(star.arg, function) if star else []
        if len(uses) != 1:
            return None
        starred = self.names.parents[uses[0]]
        call = self.names.parents[starred]
        if not isinstance(call, ast.Call) or starred not in call.args:
            return None
        entry, first = self._target(call) or (None, 0)
        before = call.args[first : call.args.index(starred)]
        if entry is None or entry.position is None or len(before) > entry.position:
            return None
        return len(_positional(function)) - skip + entry.position - len(before)

    def _definitions(self, callee: ast.expr) -> tuple[Sequence[ast.AST], bool]:
        """What a name or an attribute of a class in this file is bound to, and whether its first parameter is taken."""
        match callee:
            case ast.Name():
                return self.names.bindings(callee.id, callee), False
            case ast.Attribute(value=ast.Name() as owner):
                owners, instance = self._class(owner)
                for class_ in owners:
                    found = self.names.members(class_).get(callee.attr)
                    if found:
                        kinds = {getattr(d, "id", "") for f in found for d in getattr(f, "decorator_list", [])}
                        return found, "staticmethod" not in kinds and (instance or "classmethod" in kinds)
        return [], False

    def _class(self, owner: ast.Name) -> tuple[Sequence[ast.ClassDef], bool]:
        """The class that a name stands for, with its bases in this file, and whether it is ``self`` or ``cls``."""
        binding = self.names.binding(owner.id, owner)
        instance = isinstance(binding, ast.arg)
        if binding is not None and instance:
            function = self.names.scope(binding)
            is_first = isinstance(function, FunctionNode) and [binding] == _positional(function)[:1]
            binding = self.names.parents.get(function) if is_first else None
        classes = [binding] if isinstance(binding, ast.ClassDef) else []
        for class_ in classes:
            bases = [self.names.binding(base.id, base) for base in class_.bases if isinstance(base, ast.Name)]
            classes += [base for base in bases if isinstance(base, ast.ClassDef) and base not in classes]
        return classes, instance

    def _is_dict(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id == "dict" and self.names.home("dict", call) is None

    def _is_spread(self, value: ast.expr) -> bool:
        """Whether a dictionary goes nowhere but into the keyword arguments of kernels."""
        if value not in self._spread:
            self._spread[value] = False  # what only goes around in a circle does not go into a kernel
            self._spread[value] = self._goes_into_kernel(value)
        return self._spread[value]

    def _goes_into_kernel(self, value: ast.expr) -> bool:
        parent = self.names.parents[value]
        match parent:
            case ast.Dict():
                spread = [v for k, v in zip(parent.keys, parent.values, strict=True) if k is None]
                return value in spread and self._is_spread(parent)
            case ast.BoolOp() | ast.IfExp():
                return self._is_spread(parent)
            case ast.Assign(targets=[ast.Name() as target]) | ast.AnnAssign(target=ast.Name() as target):
                return self._is_only_spread(target)
            case ast.Call() if value in parent.args:
                return self._is_taken(parent, value)
            case ast.keyword():
                call = cast(ast.Call, self.names.parents[parent])
                return (parent.arg is None and self._target(call) is not None) or self._is_taken(call, parent)
        return False

    def _is_taken(self, call: ast.Call, argument: ast.expr | ast.keyword) -> bool:
        """Whether a dictionary that is an argument of ``call`` is only spread there."""
        if self._is_dict(call):
            return self._is_spread(call)
        definitions, skip = self._definitions(call.func)
        match definitions:
            case [ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() as function] if not _starred(call):
                by_place = _positional(function)[skip:]
                by_name = {p.arg: p for p in (*by_place, *function.args.kwonlyargs)}
                if isinstance(argument, ast.keyword):
                    parameter = by_name.get(argument.arg or "")
                else:
                    parameter = dict(zip(call.args, by_place, strict=False)).get(argument)
                return parameter is not None and self._is_only_spread(parameter)
        return False

    def _is_only_spread(self, binding: ast.Name | ast.arg) -> bool:
        """Whether the one value of a name is used only in kernels' keyword arguments, or to get or set a key of it.

        What callers pass under an old name is their function's own business where the function looks at that key.
        """
        name = binding.id if isinstance(binding, ast.Name) else binding.arg
        home = self.names.home(name, binding)
        if home is None or len(self.names.members(home)[name]) != 1:
            return False
        looked_at = {*RENAMED, *RENAMED.values()} if isinstance(binding, ast.arg) else {}
        uses = self.names.uses(name, home)
        spread = [use for use in uses if self._is_spread(use)]
        keys = [self._key(use) for use in uses if use not in spread]
        return bool(spread) and all(key is not None and key.value not in looked_at for key in keys)

    def _key(self, use: ast.expr) -> ast.Constant | None:
        """The key that is looked up or set in the dictionary ``use``."""
        parent = self.names.parents[use]
        if isinstance(parent, ast.Attribute):
            parent = self.names.parents[parent]
        keys = [n for n in ast.iter_child_nodes(parent) if isinstance(n, ast.Constant)]
        return next((key for key in keys if _keyed(parent, key) is use), None)

    def _is_key(self, text: ast.Constant, old: str) -> bool:
        """Whether a text is a key of a dictionary that is only spread into kernels."""
        parent = self.names.parents[text]
        if isinstance(parent, ast.Dict) and text in parent.keys and self._is_spread(parent):
            if any(isinstance(key, ast.Constant) and key.value == RENAMED[old] for key in parent.keys):
                raise NoFix(f"{old} and {RENAMED[old]} are both given in one dictionary; remove one of them")
            return True
        subject = _keyed(parent, text)
        value = self.names.binding(subject.id, subject) if isinstance(subject, ast.Name) else None
        return isinstance(value, ast.expr) and self._is_spread(value)


def _keyed(parent: ast.AST, key: ast.Constant) -> ast.expr | None:
    """The dictionary whose ``key`` is looked up or set in ``parent``, which holds the key."""
    match parent:
        case ast.Subscript(value=subject) | ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[subject]):
            return subject
        case ast.Call(func=ast.Attribute(value=subject, attr="get" | "pop" | "setdefault"), args=[first, *_]):
            return subject if first is key else None
    return None


def _positional(function: FunctionNode) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args]


def _starred(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args)


def _shifted(position: int | None, bound: int, call: ast.Call) -> int | None:
    """A place among the arguments that are left when the first ``bound`` are given."""
    return None if position is None or position < bound or _starred(call) else position - bound


def _plan(arguments: Sequence[tuple[str | None, ast.expr]]) -> Plan:
    plan: dict[int, _Change] = {}
    for old, new in RENAMED.items():
        given = [i for i, (name, _) in enumerate(arguments) if name in (old, new)]
        if len(given) > 1 and len({ast.dump(arguments[i][1]) for i in given}) > 1:
            raise NoFix(f"{old} and {new} are both given and differ; only you can tell which one is meant")
        kept = next((i for i in given if arguments[i][0] == new), given[0] if given else None)
        plan |= {i: _Change(old, drop=i != kept) for i in given if arguments[i][0] == old}
    return plan


def _title(plans: Mapping[ast.expr, Plan]) -> str:
    phrases = ", ".join(sorted({_phrase(node, i, c) for node, plan in plans.items() for i, c in plan.items()}))
    count = len(plans)
    return f"{phrases[0].upper()}{phrases[1:]} ({count} call site{'s' if count > 1 else ''})"


def _phrase(node: ast.expr, place: int, change: _Change) -> str:
    if change.drop:
        return f"drop {change.old}, which repeats {change.new}"
    if isinstance(node, ast.Call) and not isinstance(in_order(node)[place], ast.keyword):
        return f"pass {change.new} by keyword"
    return f"rename {change.old} to {change.new}"


def _edits(source: SourceFile, names: Names, plans: Mapping[ast.expr, Plan]) -> Iterator[Edit]:
    for run in runs(source, names, plans):
        if any(change.drop for node in run.nodes for change in plans[node].values()):
            yield _spliced(source, run, plans)
        else:
            yield from (_token(source, node, place, c) for node in run.nodes for place, c in plans[node].items())


def _token(source: SourceFile, node: ast.expr, place: int, change: _Change) -> Edit:
    """A new name in place: LibCST would take a hundred times as long to change no more than this."""
    if not isinstance(node, ast.Call):
        start, end = source.bounds(node)
        return Edit(start, end, source.text[start:end].replace(change.old, change.new))
    arguments = in_order(node)
    start, _ = source.bounds(arguments[place])
    if isinstance(arguments[place], ast.keyword):
        return Edit(start, start + len(change.old), change.new)
    # A value in parentheses starts after them for ``ast``, so look from what stands before.
    _, before = source.bounds(arguments[place - 1] if place else node.func)
    lead = cast(re.Match[str], _LEAD.match(source.text, before))
    return Edit(lead.end(), lead.end(), f"{change.new}=")


def _spliced(source: SourceFile, run: Run, plans: Mapping[ast.expr, Plan]) -> Edit:
    splice = Splice(source, run.first, run.last)
    for node in run.nodes:
        if isinstance(node, ast.Call):
            splice.on(node, functools.partial(_with_arguments, plans[node]), cst.Call)
        else:
            splice.on(node, functools.partial(_with_text, plans[node]), cst.SimpleString)
    return splice.edit()


def _with_text(plan: Plan, text: cst.SimpleString) -> cst.SimpleString:
    return text.with_changes(value=text.value.replace(plan[0].old, plan[0].new))


def _with_arguments(plan: Plan, call: cst.Call) -> cst.Call:
    args = [_renamed(arg, plan[i].new) if i in plan else arg for i, arg in enumerate(call.args)]
    call = call.with_changes(args=args)
    for i in sorted((i for i, change in plan.items() if change.drop), reverse=True):
        call = without(call, i)
    return call


def _renamed(arg: cst.Arg, new: str) -> cst.Arg:
    if arg.keyword:
        return arg.with_changes(keyword=arg.keyword.with_changes(value=new))
    tight = cst.SimpleWhitespace("")
    return arg.with_changes(keyword=cst.Name(new), equal=cst.AssignEqual(tight, tight))
