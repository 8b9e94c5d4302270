"""Conditions as JAX can compute them: no `and`, `or`, `not`, no chains of comparisons."""

import ast

from mgpu_fix.catalogue import NoFix
from mgpu_fix.source import Names
from mgpu_fix.source.flow import is_pure

from ..imports import Imports

_OPPOSITE = {ast.Eq: "!=", ast.NotEq: "=="}
#: true of numbers with an order, among which NaN is none
_OPPOSITE_OF_INTEGERS = {ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<"}
_SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_PLACES = frozenset(
    {"jax.lax.axis_index", "jax.experimental.pallas.program_id", "jax.experimental.pallas.num_programs"}
)
_LOGICAL = ("jax.numpy.logical_", "jax.numpy.is", "jax.numpy.any", "jax.numpy.all")


class Conditions:
    """Conditions of one file, as text. Raises NoFix where Python would decide otherwise than JAX computes."""

    def __init__(self, names: Names, imports: Imports) -> None:
        self.names, self.imports = names, imports

    def text(self, node: ast.expr) -> str:
        """``node`` for JAX, as it can be an argument of a call."""
        match node:
            case ast.BoolOp(op=op, values=values):
                for later in values[1:]:
                    self._check_eager(later)
                return (" & " if isinstance(op, ast.And) else " | ").join(self._part(v) for v in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.opposite(operand)
            case ast.Compare(comparators=[_, _, *_]):
                return self._chain(node)
        return self.names.source.segment(node)

    def opposite(self, node: ast.expr) -> str:
        """What holds where ``node`` does not."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.text(operand)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                sign = _OPPOSITE.get(type(op))
                if sign is None and self._is_integer(left) and self._is_integer(right):
                    sign = _OPPOSITE_OF_INTEGERS.get(type(op))
                if sign:
                    return f"{self.names.source.segment(left)} {sign} {self.names.source.segment(right)}"
        return f"{self.imports.name('jax.numpy')}.logical_not({self.text(node)})"

    def joined(self, *texts: str) -> str:
        """All of several conditions, which are texts from here."""
        return " & ".join(_grouped(t) for t in texts) if len(texts) > 1 else texts[0]

    def is_plain(self, node: ast.expr) -> bool:
        """Whether nothing that a kernel stores changes what ``node`` is."""
        loads = any(isinstance(part, ast.Subscript) for part in ast.walk(node))
        return not loads and is_pure(self.names, node)

    def _part(self, node: ast.expr) -> str:
        """A part of ``&`` or ``|``, which compute with the bits of numbers."""
        boolean = isinstance(node, ast.Compare | ast.BoolOp) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        )
        if not boolean and not self._is_logical(node):
            raise NoFix(f"by hand: `{self.names.source.segment(node)}` may be a number, of which `&` takes the bits")
        text = self.text(node)
        return text if not boolean or (text.endswith(")") and text.isidentifier()) else _grouped(text)

    def _is_logical(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            bound = self.names.binding(node.id, node)
            return isinstance(bound, ast.Compare) or (isinstance(bound, ast.Call) and self._is_logical(bound))
        return isinstance(node, ast.Call) and (self.names.resolve(node.func) or "").startswith(_LOGICAL)

    def _chain(self, node: ast.Compare) -> str:
        operands = [node.left, *node.comparators]
        if not all(self.is_plain(middle) for middle in operands[1:-1]):
            raise NoFix("by hand: give what is compared twice a name, and join the comparisons with `&`")
        segment = self.names.source.segment
        pairs = zip(operands, node.ops, operands[1:], strict=False)
        parts = []
        for left, op, right in pairs:
            if type(op) not in _SIGNS:
                raise NoFix("by hand: `in` and `is` are for Python's own values")
            parts.append(f"({segment(left)} {_SIGNS[type(op)]} {segment(right)})")
        return " & ".join(parts)

    def _check_eager(self, node: ast.expr) -> None:
        """What Python may leave out is computed always, so that it must be harmless."""
        for part in ast.walk(node):
            whole = isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant) and part.slice.value is ...
            if isinstance(part, ast.Subscript) and not whole:
                raise NoFix("by hand: nest pl.when, since what stands behind `and` or `or` is only loaded sometimes")
        if not is_pure(self.names, node):
            raise NoFix("by hand: nest pl.when, since what stands behind `and` or `or` is only called sometimes")

    def _is_integer(self, node: ast.expr, depth: int = 4) -> bool:
        """Whether ``node`` surely is an integer: a place in the grid, a loop's counter, what is computed from these."""
        if depth == 0:
            return False
        match node:
            case ast.Constant(value=value):
                return isinstance(value, int)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod(), left=left, right=right):
                return self._is_integer(left, depth - 1) and self._is_integer(right, depth - 1)
            case ast.Call(func=function):
                return self.names.resolve(function) in _PLACES
            case ast.Name(id=name):
                bound = self.names.binding(name, node)
                if isinstance(bound, ast.arg):
                    return self._counts(bound)
                return isinstance(bound, ast.expr) and self._is_integer(bound, depth - 1)
        return False

    def _counts(self, parameter: ast.arg) -> bool:
        """Whether a parameter is the counter of a ``pl.loop``."""
        function = next((a for a in self.names.ancestors(parameter) if isinstance(a, ast.FunctionDef)), None)
        if function is None or function.args.args[:1] != [parameter]:
            return False
        made = (d.func for d in function.decorator_list if isinstance(d, ast.Call))
        return any(self.names.resolve(func) == "jax.experimental.pallas.loop" for func in made)


def _grouped(text: str) -> str:
    """A text as it can stand beside an operator."""
    node = ast.parse(text, mode="eval").body
    tight = isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Subscript | ast.Constant)
    return text if tight else f"({text})"
