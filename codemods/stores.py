"""Statements that store a pytree, which a kernel's body computes, into the Refs of the kernel's outputs."""

import ast
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Param, Tree
from mgpu_fix.source import Names
from mgpu_fix.source.flow import block, is_pure, own_nodes
from mgpu_fix.source.names import FunctionNode

#: Makes a statement of the expression that stood behind ``return``.
Build: TypeAlias = Callable[[cst.BaseExpression], cst.BaseSmallStatement]
Wrap: TypeAlias = Callable[[cst.BaseExpression], cst.BaseExpression]

_SEQUENCES = ("tuple", "list")
#: Types of Python's numbers, which have no ``astype``.
PYTHON = ("bool", "int", "float", "complex")
ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


@dataclass(frozen=True)
class Output:
    """Where a value goes: the Ref that a body calls ``text``, or a pytree of such."""

    text: str
    tree: Tree
    parts: tuple["Output", ...] = ()

    @classmethod
    def of(cls, text: str, tree: Tree) -> "Output":
        """What one parameter receives."""
        parts = (cls.of(f"{text}[{key}]", child) for key, child in zip(_keys(tree), tree.children, strict=True))
        return cls(text, tree, tuple(parts))

    @classmethod
    def group(cls, parts: Sequence["Output"], keys: tuple[str, ...] = ()) -> "Output":
        """Several parameters as the tuple, or with ``keys`` the dict, that they stand for."""
        children = tuple(p.tree for p in parts)
        return cls("", Tree("dict" if keys else "tuple", children, keys), tuple(parts))

    def leaves(self) -> list["Output"]:
        """The Refs."""
        return [leaf for part in self.parts for leaf in part.leaves()] if self.parts else [self]

    @property
    def parameter(self) -> str:
        """The parameter that holds this Ref."""
        return self.text.partition("[")[0]

    def takes(self, value: Tree) -> bool:
        """Whether ``value`` has this structure."""
        ours = self.tree
        if ours.kind == "dict":
            if value.kind != "dict" or set(value.keys) != set(ours.keys):
                return False
        elif ours.kind in _SEQUENCES:
            if value.kind not in _SEQUENCES or len(value.children) != len(ours.children):
                return False
        else:
            return ours.kind == value.kind == "leaf"
        return all(part.takes(child) for child, part in _pairs(value, self))


@dataclass(frozen=True)
class Store:
    """One statement, and the output parameters it writes; none where it only names a value.

    ``spread`` says that a number fills an array, ``lossy`` that a cast to the output's type can lose what was meant.
    """

    parameters: frozenset[str]
    build: Build
    spread: bool = False
    lossy: bool = False


@dataclass(frozen=True)
class Fit:
    """What makes a value storable, see :class:`Store`, and the place that it fills."""

    wrap: Wrap | None = None
    place: str = "..."
    spread: bool = False
    lossy: bool = False


class Stores:
    """Plans the stores of one body. ``refs`` are its Refs by name and ``written`` the outputs that it writes by itself;
    ``sole`` says that it returns in one place, ``single`` that there is one output. ``along`` are the axes by which it
    asks for its place."""

    def __init__(
        self,
        names: Names,
        function: FunctionNode,
        refs: Sequence[Param],
        written: Set[str],
        sole: bool,
        single: bool,
        along: Sequence[str] = (),
    ) -> None:
        self.names, self.function, self.written, self.sole, self.single = names, function, written, sole, single
        self.along = along
        self.roles = {p.name: p.role for p in refs if p.name}
        assigned = (n for n in own_nodes(function) if isinstance(n, ast.Assign))
        #: what it assigns to, as text
        self.targets = {ast.unparse(target) for node in assigned for target in node.targets}

    def plan(self, node: ast.Return | ast.Lambda, expression: ast.expr, value: Tree, out: Output) -> list[Store]:
        """Stores of what ``expression``, returned by ``node``, gives. Raises NoFix.

        Nothing is stored for a Ref, nor for what its output holds already.
        """
        return self._plan(node, node, expression, value, out)

    def _plan(self, exit_: ast.AST, around: ast.AST, expression: ast.expr, value: Tree, out: Output) -> list[Store]:
        if isinstance(expression, ast.Name) and expression.id == out.text:
            return []
        items = _literal(expression, value, out)
        if out.tree.kind == "leaf":
            if self._is_ref(expression, value, out) or self.holds(exit_, expression, out):
                return []
            return [_store(out, self._fit(expression, value, out))]
        if items is None:
            return self._whole(value, out)
        planned = [(i, self._plan(exit_, e, e, v, o)) for i, (e, v, o) in enumerate(items)]
        if self._has_comment(around, items) or self._order_matters(items):
            return self._whole(value, out)
        return [_of_element(i, store) for i, stores in planned for store in stores]

    def _whole(self, value: Tree, out: Output) -> list[Store]:
        """Stores of a value that is computed as a whole, before anything is stored."""
        leaves = [(path, v, o) for path, v, o in _flat(value, out, "") if not self._is_ref(None, v, o)]
        if not leaves:
            return []
        fits = [self._fit(None, v, o) for _, v, o in leaves]
        pattern = _pattern(out)
        plain = all(fit == Fit() for fit in fits)
        if pattern and len(leaves) == len(out.leaves()) and plain:
            return [Store(frozenset(o.parameter for _, _, o in leaves), lambda e: _assign(pattern, e))]
        name = unused("values", self.function)
        named = [_store(o, f, f"{name}{path}") for (path, _, o), f in zip(leaves, fits, strict=True)]
        return [Store(frozenset(), lambda e: _assign(name, e)), *named]

    def _is_ref(self, expression: ast.expr | None, value: Tree, out: Output) -> bool:
        """Whether the Ref ``out`` itself is returned: there is nothing to store. Raises NoFix for another Ref."""
        name = value.ref if self.sole else None
        if isinstance(expression, ast.Name) and expression.id in self.roles:
            name = expression.id
        if not name or name == out.text:
            return name is not None
        if self.roles.get(name) == "output":
            raise NoFix(f"it returns the Ref `{name}` in the place of `{out.text}`")
        raise NoFix(f"it returns the Ref `{name}`, which is no output, in the place of `{out.text}`")

    def holds(self, exit_: ast.AST, expression: ast.expr, out: Output) -> bool:
        """Whether the Ref ``out`` surely holds what ``expression`` gives when ``exit_`` returns it."""
        places = [_text(f"{out.text}{index}") for index in ("[...]", "[:]")]
        text = ast.unparse(expression)
        if text in (*places, out.text):
            return True
        part = isinstance(expression, ast.Subscript) and ast.unparse(expression.value) == _text(out.text)
        if part and text in self.targets:
            return True
        if not isinstance(exit_, ast.Return) or not is_pure(self.names, expression):
            return False
        around = block(self.names, exit_)
        for statement in reversed(around[: around.index(exit_)]):
            if not isinstance(statement, ast.Assign):
                return False
            if any(ast.unparse(t) in places for t in statement.targets):
                stored = ast.unparse(statement.value).removesuffix(f".astype({_text(out.text)}.dtype)")
                return stored in (ast.unparse(expression), f"({ast.unparse(expression)})")
            touched = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            read = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}
            if touched & {*read, out.parameter} or not is_pure(self.names, statement.value):
                return False
        return False

    def _has_comment(self, around: ast.AST, items: Sequence[tuple[ast.expr, Tree, Output]]) -> bool:
        """Whether a comment stands in a literal, outside its elements: taking it apart would lose its place."""
        source = self.names.source
        (at, end), gaps = source.bounds(around), ""
        for element, _, _ in items:
            start, after = source.bounds(element)
            gaps += source.text[at:start]
            at = after
        return "#" in gaps + source.text[at:end]

    def _order_matters(self, items: Sequence[tuple[ast.expr, Tree, Output]]) -> bool:
        """Whether an element may see what the store of an earlier one wrote."""
        written: set[str] = set()
        for element, _, out in items:
            read = {n.id for n in ast.walk(element) if isinstance(n, ast.Name)}
            if written and (read & written or not is_pure(self.names, element)):
                return True
            written |= {o.parameter for o in out.leaves()}
        return False

    def _fit(self, expression: ast.expr | None, value: Tree, out: Output) -> Fit:
        """What makes a value storable: nothing, a cast, or for a number that is written out an array full of it.

        ``value`` was seen where another ``return`` may have run. Raises NoFix.
        """
        ours = out.tree
        ref = cst.parse_expression(out.text)
        dtype, shape = cst.Attribute(ref, cst.Name("dtype")), cst.Attribute(ref, cst.Name("shape"))
        if expression is not None and _may_be_none(expression):
            raise NoFix(f"what it returns may be None: see line {expression.lineno}")
        number = _number(expression)
        if number and (ours.shape == () or (self.single and out.parameter not in self.written)):
            full = cst.Attribute(cst.parse_expression(self._jnp()), cst.Name("full"))
            return Fit(
                lambda e: cst.Call(full, [cst.Arg(shape), cst.Arg(e), cst.Arg(dtype)]),
                spread=ours.shape != (),
                lossy=is_lossy(number, ours.dtype),
            )
        literal = expression if number or isinstance(expression, ast.Constant) else None
        place = None if literal else _place(value.shape, ours.shape) or self._row(value, ours)
        if place:
            if value.dtype == ours.dtype:
                return Fit(place=place)
            if value.shape or value.dtype not in PYTHON:
                return Fit(
                    lambda e: cst.Call(
                        cst.Attribute(e if isinstance(e, ATOMS) else parenthesised(e), cst.Name("astype")),
                        [cst.Arg(dtype)],
                    ),
                    place,
                    lossy=is_lossy(value.dtype, ours.dtype),
                )
        raise NoFix(f"it returns {ast.unparse(literal) if literal else _short(value)}, the output is {_short(ours)}")

    def _row(self, value: Tree, ours: Tree) -> str | None:
        """Which row of an output a value is, if it can be one: the one at the only place that the body asks for."""
        if value.shape != ours.shape[1:] or not ours.shape or len(self.along) != 1:
            return None
        for call in (n for n in own_nodes(self.function) if isinstance(n, ast.Call)):
            match call.args:
                case [ast.Constant(value=axis)] if axis == self.along[0]:
                    if self.names.resolve(call.func) == "jax.lax.axis_index":
                        return self._named(call)
        return None

    def _named(self, call: ast.Call) -> str:
        """What the body calls a value that it computes, or else its text."""
        match self.names.parents[call]:
            case ast.Assign(targets=[ast.Name(id=name)]) if self.names.binding(name, call) is call:
                return name
        return self.names.source.segment(call)

    def _jnp(self) -> str:
        """What the file calls ``jax.numpy``, seen from the body."""
        module = self.names.source.tree
        inside = self.function.body if isinstance(self.function, ast.Lambda) else self.function.body[0]
        for dotted, suffix in (("jax.numpy", ""), ("jax", ".numpy")):
            for name in self.names.members(module):
                resolved = self.names.resolve(ast.Name(name, ast.Load()))
                if resolved == dotted and self.names.home(name, inside) is module:
                    return name + suffix
        raise NoFix("it returns a scalar for an array, and the file does not import jax.numpy")


def unused(base: str, node: ast.AST, taken: Set[str] = frozenset()) -> str:
    """``base``, or ``base_2`` and so on where ``node`` uses the name or it is ``taken``."""
    used = {getattr(n, field, None) for n in ast.walk(node) for field in ("id", "arg", "name", "asname")} | taken
    numbered = (f"{base}_{n}" for n in itertools.count(2))
    return next(name for name in itertools.chain((base,), numbered) if name not in used)


def grouped(node: cst.BaseExpression) -> cst.BaseExpression:
    """The expression as it can stand in a statement: in parentheses where it goes over lines without any."""
    try:
        ast.parse(cst.Module([]).code_for_node(node), mode="eval")
    except SyntaxError:
        return parenthesised(node)
    return node


def parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    return node if node.lpar else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _assign(target: str, value: cst.BaseExpression) -> cst.Assign:
    place = cast(Any, cst.parse_expression(target))
    return cst.Assign([cst.AssignTarget(place)], grouped(value))


def _store(out: Output, fit: Fit, text: str = "") -> Store:
    """The store into one Ref, of ``text`` or else of what was returned."""

    def build(returned: cst.BaseExpression) -> cst.Assign:
        value = cst.parse_expression(text) if text else returned
        return _assign(f"{out.text}[{fit.place}]", fit.wrap(value) if fit.wrap else value)

    return Store(frozenset({out.parameter}), build, fit.spread, fit.lossy)


def _of_element(index: int, store: Store) -> Store:
    """The same store, of an element of the literal that was returned."""

    def build(literal: cst.BaseExpression) -> cst.BaseSmallStatement:
        return store.build(cast(Any, literal).elements[index].value)

    return replace(store, build=build)


def _keys(tree: Tree) -> list[str]:
    """What stands in brackets to get at each child."""
    return [json.dumps(k) for k in tree.keys] if tree.kind == "dict" else [str(i) for i in range(len(tree.children))]


def _pairs(value: Tree, out: Output) -> list[tuple[Tree, Output]]:
    """Children of a value and where they go, in the order of the value."""
    if value.kind == "dict":
        return [
            (child, out.parts[out.tree.keys.index(key)]) for key, child in zip(value.keys, value.children, strict=True)
        ]
    return list(zip(value.children, out.parts, strict=True))


def _literal(expression: ast.expr, value: Tree, out: Output) -> list[tuple[ast.expr, Tree, Output]] | None:
    """Elements of a tuple, list or dict that is written out, each with where it goes; None for other expressions.

    Raises NoFix where it has not the structure of the value that was seen: another path returned that one.
    """
    match expression:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if not any(
            isinstance(e, ast.Starred) for e in elements
        ):
            same = value.kind in _SEQUENCES and len(elements) == len(value.children)
            pairs = _pairs(value, out) if same else []
        case ast.Dict(keys=keys, values=elements) if all(isinstance(k, ast.Constant) for k in keys):
            texts = [str(cast(ast.Constant, k).value) for k in keys]
            same = value.kind == "dict" and sorted(texts) == sorted(value.keys)
            by_key = dict(zip(value.keys, _pairs(value, out), strict=True)) if same else {}
            pairs = [by_key[text] for text in texts] if same else []
        case _:
            return None
    if not same:
        raise NoFix(f"its returns differ in structure: see line {expression.lineno}")
    return [(element, child, part) for element, (child, part) in zip(elements, pairs, strict=True)]


def _flat(value: Tree, out: Output, path: str) -> Iterator[tuple[str, Tree, Output]]:
    """Leaves of a value with how to get at them and where they go."""
    if value.kind == "leaf":
        yield path, value, out
        return
    for key, (child, part) in zip(_keys(value), _pairs(value, out), strict=True):
        yield from _flat(child, part, f"{path}[{key}]")


def _pattern(out: Output) -> str | None:
    """The target that unpacks a value into all Refs of ``out``; None if a dict is in it."""
    if out.tree.kind == "leaf":
        return f"{out.text}[...]"
    inner = [_pattern(part) for part in out.parts]
    if out.tree.kind == "dict" or None in inner:
        return None
    nested = [f"({text})" if part.parts else text for text, part in zip(inner, out.parts, strict=True)]
    return ", ".join(map(str, nested)) + ("," if len(nested) == 1 else "")


def _number(expression: ast.expr | None) -> str:
    """The type of a number that is written out, ``int`` or ``float``; empty for anything else."""
    match expression:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant() as constant) | (ast.Constant() as constant):
            kind = type(constant.value).__name__
            return kind if kind in ("int", "float") else ""
    return ""


def _may_be_none(expression: ast.expr) -> bool:
    match expression:
        case ast.IfExp(body=body, orelse=orelse):
            return _may_be_none(body) or _may_be_none(orelse)
    return isinstance(expression, ast.Constant) and expression.value is None


def is_lossy(given: str, wanted: str) -> bool:
    """Whether a cast loses more than digits of a float: to a whole number, to fewer of them, to a bool, to a real."""
    (kind, bits), (to, room) = _kind(given), _kind(wanted)
    if kind == to == "bool":
        return False
    if to in ("int", "uint"):
        wrong_sign = kind == "int" and to == "uint"
        return kind not in ("bool", "int", "uint") or wrong_sign or bits > room - (kind == "uint" and to == "int")
    return to not in ("float", "complex") or kind == "" or (kind == "complex" and to == "float")


def may_overflow(given: str, wanted: str) -> bool:
    """Whether a cast from one float to another may make it infinite: bfloat16 goes as far as float32."""
    (kind, bits), (to, room) = _kind(given), _kind(wanted)
    return kind == to == "float" and bits > room and not wanted.startswith("bfloat")


def _kind(dtype: str) -> tuple[str, int]:
    """``bool``, ``int``, ``uint``, ``float``, ``complex`` or nothing, and how many bits."""
    found = re.match(r"b?(bool|u?int|float|complex)(\d*)", dtype)
    # A number that is written out has the width that JAX gives it.
    return (found[1], int(found[2] or (0 if found[1] == "bool" else 32))) if found else ("", 0)


def _text(expression: str) -> str:
    return ast.unparse(ast.parse(expression, mode="eval"))


def _place(shape: Sequence[int], ours: Sequence[int]) -> str | None:
    """The place in a Ref of shape ``ours`` that a value of ``shape`` fills, if that is all of the Ref: such a value may
    lack axes of size 1."""
    if shape == ours:
        return "..."
    left, index = list(shape), []
    for size in ours:
        if left[:1] == [size]:
            index.append(":")
            left = left[1:]
        elif size == 1:
            index.append("0")
        else:
            return None
    while index[-1:] == [":"]:
        index.pop()
    return None if left or not index else ", ".join(index)


def _short(leaf: Tree) -> str:
    """``f32[64]``, as JAX prints it."""
    dtype = re.sub(r"^(bfloat|float|uint|int)(?=\d)", lambda m: {"bfloat": "bf"}.get(m[0], m[0][0]), leaf.dtype)
    return f"{dtype}[{','.join(map(str, leaf.shape))}]"
