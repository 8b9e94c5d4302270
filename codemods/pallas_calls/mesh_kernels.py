"""A call of ``pl.pallas_call`` written as one of ``plgpu.kernel``, with a function around its body if it needs one."""

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit
from mgpu_fix.source import Names, Splice

from ..arguments import in_order, keyword, runs, with_argument, without
from ..imports import Imports
from ..stores import unused
from .grid_position import asks_for_size, axis, by_name
from .pipelines import Pipeline


class Writer:
    """Gathers what changes one call: itself, places in its body, and a function around that.

    ``first`` is 1 for a ``functools.partial`` of ``pl.pallas_call``; ``made`` are names of functions that are new.
    """

    def __init__(self, names: Names, call: ast.Call, plgpu: str, first: int, made: set[str]) -> None:
        self.names, self.call, self.plgpu, self.first, self.made = names, call, plgpu, first, made
        self._changes: list[tuple[ast.expr | ast.stmt, Any]] = []
        self._before: tuple[ast.stmt, str] | None = None

    def positions(self, pipeline: Pipeline, asked: Sequence[ast.Call], imports: Imports) -> None:
        """``pl.program_id`` becomes the index of an axis of the grid, or one that the pipeline hands to the body."""
        function = pipeline.body.function
        for call in asked:
            if pipeline.is_parallel(axis(call)):
                texts = [f'"{name}"' for name in pipeline.axes.names]
                self._on(call, by_name(self.names, call, texts, imports))
            elif function not in self.names.ancestors(call):
                raise NoFix(f"an index of the pipeline is asked for at line {call.lineno}, outside of its body")
            else:
                ask = pipeline.size if asks_for_size(self.names, call) else pipeline.index
                self._on(call, ask(axis(call)))
        if pipeline.told:
            if isinstance(function, ast.Lambda) or function.args.posonlyargs:
                raise NoFix(f"the body at line {function.lineno} cannot be given the indices of its pipeline")
            at, told = pipeline.body.bound, [cst.Param(cst.Name(name)) for name in pipeline.told]

            def with_told(old: cst.FunctionDef) -> cst.FunctionDef:
                params = [*old.params.params[:at], *told, *old.params.params[at:]]
                return old.with_changes(params=old.params.with_changes(params=params))

            self._changes.append((function, with_told))

    def _on(self, node: ast.expr, text: str) -> None:
        self._changes.append((node, lambda old: cst.parse_expression(text)))

    def redeclare(self, arguments: Mapping[str, ast.expr], pipeline: Pipeline, body: str = "") -> None:
        """Change the call itself; ``body`` is the new one's name, empty where it stays."""
        new: dict[str, tuple[str, str] | None] = {
            "kernel": ("body", body),
            "out_shape": ("out_type", _outputs(self.names, arguments)),
            "scratch_shapes": ("scratch_types", ""),
            "compiler_params": None if pipeline.params is None else ("compiler_params", pipeline.params),
            "grid": ("grid", pipeline.grid(parallel=True)) if pipeline.grid_names else None,
            "name": ("kernel_name", ""),
            **{name: (name, "") for name in ("debug", "interpret", "cost_estimate")},
        }
        places: dict[int, tuple[str, str] | None] = {}
        for place, argument in enumerate(in_order(self.call)[self.first :], self.first):
            if isinstance(argument, ast.keyword):
                name = "grid" if argument.arg == "grid_spec" else argument.arg
                places[place] = new.get(name or "") if name in arguments else None
            elif argument is arguments.get("kernel"):
                places[place] = ("", body)
            else:
                places[place] = new["out_shape"]
        declared = functools.partial(_redeclared, places, pipeline.grid_names, f"{self.plgpu}.kernel", self.first)
        self._changes.append((self.call, declared))

    def wrap(self, arguments: Mapping[str, ast.expr], pipeline: Pipeline, imports: Imports) -> None:
        """Put a function around the body that runs it on blocks."""
        function = pipeline.body.function
        old = getattr(function, "name", "kernel")
        decorated = self.call in getattr(function, "decorator_list", [])
        if isinstance(self.names.scope(self.call), ast.ClassDef):
            raise NoFix(f"the kernel at line {self.call.lineno} is declared in a class")
        if decorated:
            inner = self._new(f"{old}_block")
            text = pipeline.text(old, inner, self.plgpu, imports)
            self.redeclare(arguments, pipeline)
            self._changes.append((function, functools.partial(_split, text, inner, bool(function.col_offset))))
            return
        statement = self.names.statement(self.call)
        name = self._new(f"{old}_pipeline")
        if "kernel" in arguments:
            text = pipeline.text(name, arguments["kernel"], self.plgpu, imports)
            self.redeclare(arguments, pipeline, name)
        else:
            [outer] = [self.names.parents[self.call]]
            if not isinstance(outer, ast.Call) or outer.func is not self.call:
                raise NoFix(f"what runs on blocks is not given where line {self.call.lineno} declares it")
            text = pipeline.text(name, outer.args[0], self.plgpu, imports)
            self._on(outer.args[0], name)
            self.redeclare(arguments, pipeline)
        self._before = statement, text

    def _new(self, base: str) -> str:
        """A name for a new function."""
        name = unused(base, self.names.source.tree, self.made)
        self.made.add(name)
        return name

    def edits(self) -> Iterator[Edit]:
        """All changes. Raises SourceError."""
        nodes = [node for node, _ in self._changes]
        for run in runs(self.names.source, self.names, dict.fromkeys(nodes)):  # type: ignore[arg-type]
            splice = Splice(self.names.source, run.first, run.last)
            for node, change in self._changes:
                if any(node is n for n in run.nodes):
                    splice.on(
                        node, change, cst.FunctionDef if isinstance(node, ast.FunctionDef) else cst.BaseExpression
                    )
            if self._before and any(self.call is n for n in run.nodes):
                statement, text = self._before
                splice.insert_before(statement, functools.partial(_function, text))
            yield splice.edit()


def _function(text: str) -> cst.FunctionDef:
    return cst.ensure_type(cst.parse_statement(text), cst.FunctionDef)


def _split(text: str, inner: str, nested: bool, old: cst.FunctionDef) -> Any:
    """The function of ``text`` with the decorators of ``old``, and ``old`` after it by the name ``inner``."""
    outer = _function(text).with_changes(
        decorators=old.decorators, leading_lines=old.leading_lines, lines_after_decorators=old.lines_after_decorators
    )
    apart = [cst.EmptyLine(indent=False)] * (1 if nested else 2)
    return cst.FlattenSentinel(
        [outer, old.with_changes(name=cst.Name(inner), decorators=[], leading_lines=apart, lines_after_decorators=[])]
    )


def _outputs(names: Names, arguments: Mapping[str, ast.expr]) -> str:
    """A list of outputs as the tuple that ``pl.pallas_call`` made of it; empty for what stays as it is."""
    value = arguments.get("out_shape")
    if isinstance(value, ast.Name) and isinstance(names.binding(value.id, value), ast.List):
        return f"tuple({value.id})"
    if not isinstance(value, ast.List):
        return ""
    inside = names.source.segment(value)[1:-1]
    lone = len(value.elts) == 1 and not inside.rstrip().endswith(",")
    return f"({inside}{',' if lone else ''})"


def _redeclared(
    places: Mapping[int, tuple[str, str] | None], grid_names: str, callee: str, first: int, call: cst.Call
) -> cst.Call:
    """A call of ``pl.pallas_call`` as one of ``callee``: its arguments by new names, with new values, or gone."""
    function = cst.parse_expression(callee)
    args = list(call.args)
    if first:
        args[0] = args[0].with_changes(value=function)
    else:
        call = call.with_changes(func=function)
    for place, new in places.items():
        if new is not None:
            name, value = new
            args[place] = _argument(args[place], name, value)
    call = call.with_changes(args=args)
    grid = next((place for place, new in places.items() if new and new[0] == "grid"), None)
    for place in sorted((p for p, new in places.items() if new is None), reverse=True):
        call = without(call, place)
        grid = grid - 1 if grid is not None and place < grid else grid
    if grid is not None:
        call = _after(call, grid, keyword("grid_names", grid_names))
    return call


def _argument(arg: cst.Arg, name: str, value: str) -> cst.Arg:
    tight = cst.SimpleWhitespace("")
    if value:
        arg = arg.with_changes(value=cst.parse_expression(value))
    if arg.keyword:
        return arg.with_changes(keyword=arg.keyword.with_changes(value=name))
    return arg.with_changes(keyword=cst.Name(name), equal=cst.AssignEqual(tight, tight)) if name else arg


def _after(call: cst.Call, place: int, new: cst.Arg) -> cst.Call:
    """The call with an argument more after the one at ``place``, set like that one."""
    if place == len(call.args) - 1:
        return with_argument(call, new)
    args = list(call.args)
    comma = cst.ensure_type(args[place].comma, cst.Comma)
    space = comma.whitespace_after
    if isinstance(space, cst.ParenthesizedWhitespace):
        space = space.with_changes(first_line=cst.TrailingWhitespace(newline=space.first_line.newline), empty_lines=[])
    args[place] = args[place].with_changes(comma=comma.with_changes(whitespace_after=space))
    args.insert(place + 1, new.with_changes(comma=comma))
    return call.with_changes(args=args)
