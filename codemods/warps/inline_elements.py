"""``inline_mgpu`` functions as one warp can call them: each element is stored into a Ref, or all make one number."""

import ast
import itertools
from collections.abc import Iterator, Sequence

import libcst as cst

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Edit, Operation
from mgpu_fix.source import apply_edits

from ..arguments import in_order, spliced, without_keyword
from ..imports import Imports
from .primitives import SETS
from .regions import INLINE, PALLAS, WarpRegion

_PLGPU = f"{PALLAS}.mosaic_gpu"
_MGPU = "jax.experimental.mosaic.gpu"
_LOAD, _SPLAT = (f"{_MGPU}.FragmentedArray.{name}" for name in ("load_strided", "splat"))

#: what they may be given by name
_KNOWN = frozenset(("vec_size", "is_signed", "layout"))

#: dtypes of which every element has an address of its own, and those that a sum keeps
_DTYPES = frozenset(("float16", "bfloat16", "float32", "int8", "int16", "int32", "uint8", "uint16", "uint32"))
_SUMMED = frozenset(("float32", "int32"))
#: how the elements become one number
_REDUCES = {"sum": "{} + {}", "max": "{}.max({})", "min": "{}.min({})"}
#: the most elements that are spelled out for that
_MOST_SPELLED = 256


class InlineRegion(WarpRegion):
    """A region and the calls in it of functions that make arrays of ``inline_mgpu``."""

    def calls(self) -> Iterator[tuple[ast.FunctionDef, ast.Call, Operation]]:
        """Each call with the function that it calls. Raises NoFix where a function is not known, or used elsewhere."""
        made = [(o, self._nodes.get(span)) for o, span in self.operations if o.name == INLINE and o.shape]
        for operation, call in made:
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise NoFix("what the region calls is not defined in a form that is known")
            function = self.names.binding(call.func.id, call)
            if not isinstance(function, ast.FunctionDef):
                raise NoFix(f"`{call.func.id}` is not defined in a form that is known")
            for use in self.names.uses(function.name, self.names.scope(function)):
                if not any(isinstance(n, ast.Call) and n.func is use for _, n in made):
                    raise NoFix(f"`{function.name}` is also used at line {use.lineno}")
            yield function, call, operation

    def stored(self, call: ast.Call) -> ast.Subscript:
        """The place of a Ref that takes what ``call`` returns, and nothing else. Raises NoFix."""
        match self.names.parents[call]:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name)) as target], value=value) if value is call:
                refs = {o.ref for o, span in self.operations if o.name in SETS and span == self.source.bounds(target)}
                taken = {o.ref for o, span in self.operations if span == self.source.bounds(call)}
                given = [n.id for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)]
                if refs & taken or name in given:
                    # The lanes of a warp would read what others of them have stored.
                    raise NoFix(f"line {call.lineno} stores to what it reads")
                return target
        raise NoFix(f"what line {call.lineno} calls is not just stored to a Ref")

    def reduced(self, call: ast.Call) -> tuple[ast.expr, str | tuple[int, ...]]:
        """The expression that makes one number of what ``call`` returns, and how: by name, or the element's place."""
        outer = self.names.parents[call]
        match outer:
            case ast.Call(func=func, args=[argument], keywords=[]) if argument is call:
                library, _, name = (self.names.resolve(func) or "").rpartition(".")
                if library == "jax.numpy" and name in _REDUCES:
                    return outer, name
            case ast.Subscript(value=value, slice=index) if value is call:
                parts = index.elts if isinstance(index, ast.Tuple) else [index]
                at = tuple(p.value for p in parts if isinstance(p, ast.Constant) and type(p.value) is int)
                if len(at) == len(parts):
                    return outer, at
        raise NoFix(f"line {call.lineno} does not make one number of the array")


def written(regions: Sequence[InlineRegion], imports: Imports) -> Iterator[Edit]:
    """Edits that let the functions store each element into the Ref that the caller stored to. Raises NoFix."""
    for function, calls in _by_function(regions):
        made = ElementWise(imports, function, calls[0][2])
        yield from made.into_ref()
        for region, call, _ in calls:
            target = region.stored(call)
            place = region.source.segment(target.value)
            if not (isinstance(target.slice, ast.Constant) and target.slice.value is ...):
                place += f".at[{region.source.segment(target.slice)}]"
            more = ", ".join([*map(region.source.segment, in_order(call)), place])
            statement = region.names.statement(call)
            yield Edit(*region.source.bounds(statement), f"{function.name}({more})")


def numbered(regions: Sequence[InlineRegion], imports: Imports) -> Iterator[Edit]:
    """Edits that let the functions return the one number that the caller made of the array. Raises NoFix."""
    for function, calls in _by_function(regions):
        outer = [(region, call, *region.reduced(call)) for region, call, _ in calls]
        if len({how for *_, how in outer}) > 1:
            raise NoFix(f"several numbers are made of what `{function.name}` returns")
        yield from ElementWise(imports, function, calls[0][2]).to_number(outer[0][-1])
        for region, call, whole, _ in outer:
            yield Edit(*region.source.bounds(whole), region.source.segment(call))


_Call = tuple[InlineRegion, ast.Call, Operation]


def _by_function(regions: Sequence[InlineRegion]) -> Iterator[tuple[ast.FunctionDef, list[_Call]]]:
    found: dict[ast.FunctionDef, list[_Call]] = {}
    for region in regions:
        for function, call, operation in region.calls():
            found.setdefault(function, []).append((region, call, operation))
    for function, calls in found.items():
        if len({(o.shape, o.dtype) for *_, o in calls}) > 1:
            raise NoFix(f"`{function.name}` is called for several shapes")
        yield function, list({id(call): (region, call, o) for region, call, o in calls}.values())


class ElementWise:
    """A function that makes one array with ``FragmentedArray``, each element of the elements at the same place of its
    Refs. Raises NoFix where that is not plain to see."""

    def __init__(self, imports: Imports, function: ast.FunctionDef, operation: Operation) -> None:
        self.imports, self.names, self.function = imports, imports.names, function
        self.source, self.shape, self.dtype = imports.names.source, operation.shape, operation.dtype
        if self.dtype not in _DTYPES:
            raise NoFix(f"elements of {self.dtype} are not stored one by one")
        self._arrays: set[str] = set()
        self._sources: list[ast.Call] = []
        self.decorator = self._declared()
        self.first = self._read()
        names = [n.id for n in ast.walk(function) if isinstance(n, ast.Name)]
        self._taken = {*names, *(a.arg for a in function.args.args)}
        self.indices = [self._fresh(name) for name, _ in zip("ijkmn", self.shape, strict=False)]

    def _declared(self) -> ast.Call:
        taken = self.function.args
        if taken.defaults or taken.kwonlyargs or taken.vararg or taken.kwarg:
            raise NoFix(f"`{self.function.name}` takes other parameters than Refs")
        match self.function.decorator_list:
            case [ast.Call(args=[], keywords=keywords) as call]:
                given = {k.arg: k.value for k in keywords}
                types, result = given.get("arg_types"), given.get("return_type")
                refs = isinstance(types, ast.Tuple) and all(self._makes(t, "RefType") for t in types.elts)
                if set(given) == {"arg_types", "return_type"} and refs and self._makes(result, "ShapeDtypeStruct"):
                    return call
        raise NoFix(f"`{self.function.name}` is not declared to make one array of plain Refs")

    def _makes(self, node: ast.expr | None, name: str) -> bool:
        if not isinstance(node, ast.Call) or self.names.resolve(node.func) != f"{_PLGPU}.{name}":
            return False
        # A Ref type with transforms says that the elements lie elsewhere.
        return name != "RefType" or not (node.args or node.keywords)

    def _read(self) -> ast.stmt:
        """The first statement that makes an array; from there on all goes into the loop."""
        if self.source.line(self.function.body[0].lineno)[: self.function.body[0].col_offset].strip():
            raise NoFix(f"`{self.function.name}` stands on one line")
        first = None
        for statement in self.function.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if self._is_array(value):
                        self._arrays.add(name)
                        first = first or statement
                    continue
                case ast.Return(value=ast.expr() as value) if statement is self.function.body[-1]:
                    if self._is_array(value):
                        return first or statement
            break
        raise NoFix(f"what `{self.function.name}` does at line {statement.lineno} is not done element by element")

    def _is_array(self, node: ast.expr) -> bool:
        """Whether an expression makes an array; raises NoFix where that is made in a way that is not known."""
        match node:
            case ast.Name(id=name):
                return name in self._arrays
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
                return any([self._is_array(left), self._is_array(right)])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._is_array(operand)
            case ast.Call(func=func, args=[first, *rest], keywords=keywords):
                dotted, known = self.names.resolve(func), {k.arg for k in keywords} <= _KNOWN
                is_ref = isinstance(first, ast.Name) and self.names.binding(first.id, first) in self.function.args.args
                whole = (dotted == _LOAD and is_ref and not rest) or (dotted == _SPLAT and bool(rest))
                if known and whole and not self._is_array(first):
                    self._sources.append(node)
                    return True
        inside = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
        touches = any(isinstance(n, ast.Name) and n.id in self._arrays for n in inside)
        if touches or any((self.names.resolve(n) or "").startswith(f"{_MGPU}.FragmentedArray") for n in inside):
            raise NoFix(f"what line {node.lineno} does with an array is not done element by element")
        return False

    def _fresh(self, name: str) -> str:
        numbered = (f"{name}{k}" for k in itertools.count(2))
        fresh = next(n for n in itertools.chain([name], numbered) if n not in self._taken)
        self._taken.add(fresh)
        return fresh

    def _module(self, name: str) -> str:
        """What the file calls a module of MLIR's, which it may have from one of two places."""
        places = [f"jax._src.lib.mlir.{name}", f"jaxlib.mlir.{name}"]
        imported = {self.names.imported(a) for a in self.names.nodes(ast.alias)}
        return self.imports.name(next((p for p in places if p in imported), places[-1]))

    def _index(self, value: object) -> str:
        return f"{self.imports.name(_MGPU)}.c({value}, {self._module('ir')}.IndexType.get())"

    # ------------------------------------------------------------------ edits

    def into_ref(self) -> Iterator[Edit]:
        """The function with one more parameter, a Ref, into which it stores instead of returning."""
        out, carry, value = self._fresh("out_ref"), self._fresh("carry"), self._fresh("value")
        at = ", ".join(self.indices)
        store = f"{self._module('dialects.memref')}.store({value}.registers.item(), {out}, [{at}])"
        lines: list[str] = []
        for depth, (size, index) in enumerate(zip(self.shape, self.indices, strict=True)):
            indent = self.source.indent * depth
            lines += [f"{indent}@{self.imports.name(_MGPU)}.fori({self._index(size)}, ())"]
            lines += [f"{indent}def _({index}, {carry}):"]
        lines += _indented([*self._rest(at, f"{value} ="), store], self.source.indent * len(self.shape))
        lines += [f"{self.source.indent * depth}return {carry}" for depth in range(len(self.shape), 0, -1)]
        yield self._replaced(lines)
        end = self.source.bounds(self.function.args.args[-1])[1]
        yield Edit(end, end, f", {out}")
        yield from spliced(self.names, {self.decorator: self._takes_ref})

    def to_number(self, how: str | tuple[int, ...]) -> Iterator[Edit]:
        """The function that returns one number: its elements' sum, or largest or smallest, or that at a place."""
        if isinstance(how, tuple):
            if len(how) != len(self.shape) or not all(0 <= i < n for i, n in zip(how, self.shape, strict=True)):
                raise NoFix(f"`{self.function.name}` returns no number at {list(how)}")
            lines = self._rest(", ".join(map(self._index, how)), "return")
        else:
            if len(self.shape) != 1 or self.shape[0] > _MOST_SPELLED or (how == "sum" and self.dtype not in _SUMMED):
                raise NoFix(f"the {how} of {list(self.shape)} elements of {self.dtype} is not spelled out")
            signs = [k.value for call in self._sources for k in call.keywords if k.arg == "is_signed"]
            signed = str(self.dtype).startswith("int")
            if how != "sum" and not all(isinstance(s, ast.Constant) and s.value in (signed, None) for s in signs):
                raise NoFix(f"whether `{self.function.name}` counts below zero is not what its {self.dtype} says")
            element, result, [i] = self._fresh("element"), self._fresh("result"), self.indices
            lines = [f"def {element}({i}):", *_indented(self._rest(i, "return"), self.source.indent), ""]
            lines += [f"{result} = {element}({self._index(0)})", f"for {i} in range(1, {self.shape[0]}):"]
            step = _REDUCES[how].format(result, f"{element}({self._index(i)})")
            lines += [f"{self.source.indent}{result} = {step}", f"return {result}"]
        yield self._replaced(lines)
        yield from spliced(self.names, {self.decorator: self._makes_number})

    def _rest(self, at: str, last: str) -> list[str]:
        """Lines from the first array on, for one element, with ``last`` in place of the word ``return``."""
        made = self.source.segment
        start = self.source.bounds(self.function.body[-1])[0]
        edits = [Edit(start, start + len("return"), last)]
        memref = self._module("dialects.memref")
        for call in self._sources:
            signed = "".join(f", {made(k)}" for k in call.keywords if k.arg == "is_signed")
            value = made(call.args[0])
            if self.names.resolve(call.func) == _LOAD:
                value = f"{memref}.load({value}, [{at}])"
            array = made(call.func).rpartition(".")[0]
            edits.append(Edit(*self.source.bounds(call), f"{array}.splat({value}, (){signed})"))
        begin = self.source.starts[self.first.lineno - 1]
        text = apply_edits(
            self.source.text[begin : self._end], [Edit(e.start - begin, e.end - begin, e.new) for e in edits]
        )
        if any(isinstance(n, ast.Constant) and n.lineno != n.end_lineno for n in ast.walk(self.function)):
            raise NoFix(f"`{self.function.name}` has a text of several lines")
        return [line.removeprefix(self.source.indentation(self.first.lineno)) for line in text.splitlines()]

    @property
    def _end(self) -> int:
        """Where the line of the return ends."""
        line = self.function.body[-1].end_lineno or 0
        return self.source.starts[line - 1] + len(self.source.line(line).rstrip("\r\n"))

    def _replaced(self, lines: Sequence[str]) -> Edit:
        indent = self.source.indentation(self.first.lineno)
        start = self.source.starts[self.first.lineno - 1]
        return Edit(start, self._end, self.source.newline.join(f"{indent}{line}" if line else "" for line in lines))

    def _takes_ref(self, call: cst.Call) -> cst.Call:
        def one_more(arg: cst.Arg) -> cst.Arg:
            if arg.keyword is None or arg.keyword.value != "arg_types":
                return arg
            assert isinstance(arg.value, cst.Tuple)
            new = cst.Element(cst.parse_expression(f"{self._pallas()}.RefType()"))
            elements = [*arg.value.elements]
            if elements:
                elements[-1] = elements[-1].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
            else:
                new = new.with_changes(comma=cst.Comma())
            return arg.with_changes(value=arg.value.with_changes(elements=[*elements, new]))

        changed = call.with_changes(args=[one_more(arg) for arg in call.args])
        return without_keyword(changed, "return_type")

    def _makes_number(self, call: cst.Call) -> cst.Call:
        place = next(i for i, a in enumerate(call.args) if a.keyword and a.keyword.value == "return_type")
        number = f"{self._pallas()}.ShapeDtypeStruct((), {self._dtype()}, layout={self._pallas()}.Layout.WG_SPLAT)"
        args = [*call.args]
        args[place] = args[place].with_changes(value=cst.parse_expression(number))
        return call.with_changes(args=args)

    def _pallas(self) -> str:
        return self.source.segment(self.decorator.func).rpartition(".")[0]

    def _dtype(self) -> str:
        made = next(k.value for k in self.decorator.keywords if k.arg == "return_type")
        assert isinstance(made, ast.Call)
        given = made.args[1] if len(made.args) > 1 else next(k.value for k in made.keywords if k.arg == "dtype")
        return self.source.segment(given)


def _indented(lines: Sequence[str], indent: str) -> list[str]:
    return [f"{indent}{line}" if line else "" for line in lines]
