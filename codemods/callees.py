"""Which of JAX's functions a call ends in: through aliases, ``functools.partial``, methods, functions of the file that
pass their arguments on, and dictionaries that are only spread into such calls."""

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from mgpu_fix.source import Names
from mgpu_fix.source.names import FunctionNode

from .arguments import in_order

#: Where Pallas keeps what it makes public elsewhere.
_HOMES = (
    (re.compile(r"jax\._src\.pallas\.mosaic_gpu\.\w+\."), "jax.experimental.pallas.mosaic_gpu."),
    (re.compile(r"jax\._src\.pallas\.\w+\.(?=\w+$)"), "jax.experimental.pallas."),
)
_MODULES = (
    ("jax.experimental.pallas.mosaic_gpu.", "plgpu."),
    ("jax.experimental.pallas.", "pl."),
    ("jax.experimental.mosaic.gpu.", "mgpu."),
)


def public(dotted: str | None) -> str:
    """The public name of what a private one of Pallas' stands for; other names as they are, None as an empty one."""
    if dotted is None or not dotted.startswith("jax._src."):
        return dotted or ""
    for private, home in _HOMES:
        dotted = private.sub(home, dotted)
    return dotted


def short(dotted: str) -> str:
    """A dotted name as kernel authors write it: ``plgpu.kernel``."""
    module, written = next(((m, w) for m, w in _MODULES if dotted.startswith(m)), ("", ""))
    return written + dotted.removeprefix(module)


@dataclass(frozen=True)
class Callee:
    """One of JAX's functions, called or with some of its arguments bound.

    ``shift`` is what to add to a positional argument's index to get that of the function's own parameter, None where
    no positional argument reaches it. ``own`` are keywords that are parameters of a function in between.
    """

    dotted: str
    shift: int | None = 0
    own: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Argument:
    """An argument of a call that ends in ``callee``, or a keyword of a dictionary that is only spread into such.

    ``parameter`` is what JAX calls it, empty for a positional one, which then has ``index`` among the function's own
    parameters, -1 where nobody knows. ``place`` is that in the source, see :func:`arguments.in_order`.
    """

    place: int
    parameter: str
    index: int
    value: ast.expr


class Callees:
    """The calls of one file that end in one of the functions ``wanted``, by dotted public names.

    ``keywords`` are those that the caller asks about: a function that has one as a parameter of its own does not pass
    it on, and one that looks at it in ``**kwargs`` is left alone.
    """

    def __init__(self, names: Names, wanted: Collection[str], keywords: Collection[str]) -> None:
        self.names = names
        self.wanted = frozenset(wanted)
        self.keywords = frozenset(keywords)
        self._callees: dict[tuple[ast.AST, bool], Callee | None] = {}
        self._spread: dict[ast.expr, bool] = {}

    def of(self, call: ast.Call) -> tuple[Callee, int] | None:
        """What ``call`` calls, or binds arguments of with ``functools.partial``, and where its arguments begin."""
        first = 1 if call.args and self.names.resolve(call.func) == "functools.partial" else 0
        callee = self.callee(call.args[0] if first else call.func)
        return (callee, first) if callee else None

    def arguments(self, call: ast.Call) -> list[Argument]:
        """The arguments of ``call`` in source order; of ``dict(...)`` too, where that is only spread into such calls.

        Empty where it ends in none of the functions. What follows a star has no index.
        """
        callee, first = self.of(call) or (None, 0)
        if callee is None:
            if not self._is_dict(call) or not self.is_spread(call):
                return []
            callee = Callee("", None)
        found: list[Argument] = []
        known = callee.shift is not None
        for place, argument in enumerate(in_order(call)):
            if isinstance(argument, ast.keyword):
                name = argument.arg if argument.arg and argument.arg not in callee.own else ""
                found.append(Argument(place, name, -1, argument.value))
                continue
            known = known and not isinstance(argument, ast.Starred)
            index = call.args.index(argument) - first
            found.append(Argument(place, "", index + (callee.shift or 0) if known and index >= 0 else -1, argument))
        return found

    def callee(self, function: ast.expr) -> Callee | None:
        """What a callee does with its arguments, None where it does not hand them on to a function that is wanted."""
        dotted = public(self.names.resolve(function))
        if dotted in self.wanted:
            return Callee(dotted)
        if isinstance(function, ast.Call):
            callee, first = self.of(function) or (None, 0)
            if callee is None or not first:
                return None
            return replace(callee, shift=_shifted(callee.shift, len(function.args) - first, function))
        definitions, skip = self._definitions(function)
        callees = {self._defined(definition, skip) for definition in definitions}
        return callees.pop() if len(callees) == 1 else None

    def _defined(self, definition: ast.AST, skip: bool) -> Callee | None:
        key = definition, skip
        if key not in self._callees:
            self._callees[key] = None  # what is defined by itself is unknown
            if isinstance(definition, FunctionNode):
                self._callees[key] = self._wrapper(definition, skip)
            elif isinstance(definition, ast.expr):
                self._callees[key] = self.callee(definition)
        return self._callees[key]

    def _wrapper(self, function: FunctionNode, skip: bool) -> Callee | None:
        """A function that hands its ``**kwargs`` on; ``skip`` its first parameter, which is bound."""
        taken = function.args
        if taken.kwarg is None or not self._is_only_spread(taken.kwarg):
            return None
        own = {p.arg for p in (*positional(function), *taken.kwonlyargs)}
        inner = self._spread_into(taken.kwarg, function)
        if inner is None:
            return None
        return Callee(inner.dotted, self._star_shift(function, skip), frozenset(own & self.keywords))

    def _spread_into(self, kwarg: ast.arg, function: FunctionNode) -> Callee | None:
        """The one function that ``**kwargs`` is spread into."""
        found = set()
        for use in self.names.uses(kwarg.arg, function):
            for outer in self.names.ancestors(use):
                if isinstance(outer, ast.Call) and (target := self.of(outer)):
                    found.add(target[0].dotted)
                    break
        if len(found) > 1 or not found:
            # Several, or by way of a variable: which keyword goes where does not matter where all have the same.
            found = {min(self.wanted)} if self.wanted else found
        return Callee(found.pop()) if found else None

    def _star_shift(self, function: FunctionNode, skip: bool) -> int | None:
        """How positional arguments of a function that hands its ``*args`` on are shifted."""
        star = function.args.vararg
        uses = self.names.uses(star.arg, function) if star else []
        if len(uses) != 1:
            return None
        starred = self.names.parents[uses[0]]
        call = self.names.parents[starred]
        if not isinstance(call, ast.Call) or starred not in call.args:
            return None
        callee, first = self.of(call) or (None, 0)
        if callee is None or callee.shift is None:
            return None
        before = len(call.args[first : call.args.index(starred)])
        return callee.shift + before - (len(positional(function)) - skip)

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
            is_first = isinstance(function, FunctionNode) and [binding] == positional(function)[:1]
            binding = self.names.parents.get(function) if is_first else None
        classes = [binding] if isinstance(binding, ast.ClassDef) else []
        for class_ in classes:
            bases = [self.names.binding(base.id, base) for base in class_.bases if isinstance(base, ast.Name)]
            classes += [base for base in bases if isinstance(base, ast.ClassDef) and base not in classes]
        return classes, instance

    def _is_dict(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id == "dict" and self.names.home("dict", call) is None

    def is_spread(self, value: ast.expr) -> bool:
        """Whether a dictionary goes nowhere but into the keyword arguments of such calls."""
        if value not in self._spread:
            self._spread[value] = False  # what only goes around in a circle does not go into a call
            self._spread[value] = self._goes_into_call(value)
        return self._spread[value]

    def _goes_into_call(self, value: ast.expr) -> bool:
        parent = self.names.parents[value]
        match parent:
            case ast.Dict():
                spread = [v for k, v in zip(parent.keys, parent.values, strict=True) if k is None]
                return value in spread and self.is_spread(parent)
            case ast.BoolOp() | ast.IfExp():
                return self.is_spread(parent)
            case ast.Assign(targets=[ast.Name() as target]) | ast.AnnAssign(target=ast.Name() as target):
                return self._is_only_spread(target)
            case ast.Call() if value in parent.args:
                return self._is_taken(parent, value)
            case ast.keyword():
                call = cast(ast.Call, self.names.parents[parent])
                return (parent.arg is None and self.of(call) is not None) or self._is_taken(call, parent)
        return False

    def _is_taken(self, call: ast.Call, argument: ast.expr | ast.keyword) -> bool:
        """Whether a dictionary that is an argument of ``call`` is only spread there."""
        if self._is_dict(call):
            return self.is_spread(call)
        definitions, skip = self._definitions(call.func)
        match definitions:
            case [ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() as function] if not starred(call):
                by_place = positional(function)[skip:]
                by_name = {p.arg: p for p in (*by_place, *function.args.kwonlyargs)}
                if isinstance(argument, ast.keyword):
                    parameter = by_name.get(argument.arg or "")
                else:
                    parameter = dict(zip(call.args, by_place, strict=False)).get(argument)
                return parameter is not None and self._is_only_spread(parameter)
        return False

    def _is_only_spread(self, binding: ast.Name | ast.arg) -> bool:
        """Whether the one value of a name is used only in such calls' keyword arguments, or to get or set a key of it.

        What callers pass under a keyword is their function's own business where the function looks at that key.
        """
        name = binding.id if isinstance(binding, ast.Name) else binding.arg
        home = self.names.home(name, binding)
        if home is None or len(self.names.members(home)[name]) != 1:
            return False
        looked_at = self.keywords if isinstance(binding, ast.arg) else frozenset()
        uses = self.names.uses(name, home)
        spread = [use for use in uses if self.is_spread(use)]
        keys = [self._key(use) for use in uses if use not in spread]
        return bool(spread) and all(key is not None and key.value not in looked_at for key in keys)

    def _key(self, use: ast.expr) -> ast.Constant | None:
        """The key that is looked up or set in the dictionary ``use``."""
        parent = self.names.parents[use]
        if isinstance(parent, ast.Attribute):
            parent = self.names.parents[parent]
        keys = [n for n in ast.iter_child_nodes(parent) if isinstance(n, ast.Constant)]
        return next((key for key in keys if _keyed(parent, key) is use), None)

    def is_key(self, text: ast.Constant) -> bool:
        """Whether a text is a key of a dictionary that is only spread into such calls."""
        parent = self.names.parents[text]
        if isinstance(parent, ast.Dict) and text in parent.keys:
            return self.is_spread(parent)
        subject = _keyed(parent, text)
        value = self.names.binding(subject.id, subject) if isinstance(subject, ast.Name) else None
        return isinstance(value, ast.expr) and self.is_spread(value)


def _keyed(parent: ast.AST, key: ast.Constant) -> ast.expr | None:
    """The dictionary whose ``key`` is looked up or set in ``parent``, which holds the key."""
    match parent:
        case ast.Subscript(value=subject) | ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[subject]):
            return subject
        case ast.Call(func=ast.Attribute(value=subject, attr="get" | "pop" | "setdefault"), args=[first, *_]):
            return subject if first is key else None
    return None


def reached(names: Names, functions: Iterable[ast.AST | None]) -> set[ast.AST]:
    """All that stands in functions and in those of the file that they name, and so on."""
    to_do = [*functions]
    found: set[ast.AST] = set()
    while to_do:
        function = to_do.pop()
        if isinstance(function, ast.FunctionDef | ast.Lambda) and function not in found:
            inside = [*ast.walk(function)]
            found.update(inside)
            to_do += [names.binding(n.id, n) for n in inside if isinstance(n, ast.Name)]
    return found


def positional(function: FunctionNode) -> list[ast.arg]:
    """Parameters that can be given by place."""
    return [*function.args.posonlyargs, *function.args.args]


def starred(call: ast.Call) -> bool:
    """Whether positional arguments of a call are spread from something."""
    return any(isinstance(argument, ast.Starred) for argument in call.args)


def _shifted(shift: int | None, bound: int, call: ast.Call) -> int | None:
    return None if shift is None or starred(call) else shift + bound
