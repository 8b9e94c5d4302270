"""MGF503: tensor memory that is read and written as if it were SMEM."""

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure, TensorMemoryUse
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import block, is_pure
from mgpu_fix.versions import parse

from .callees import public
from .imports import Imports
from .places import standing_at
from .store_calls import opened, place

_MODULE = "jax.experimental.pallas.mosaic_gpu"
#: Expressions that compute all of their parts, once and in any case.
_PLAIN = (ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.Tuple, ast.List)
#: from this release on `plgpu.load` takes a Ref without an index
_INDEX_LEFT_OUT = parse("0.11.0")
_OPERATORS = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
    **{ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@"},
}


class TmemAccess(Rule):
    """Tensor memory (TMEM) is read or written with `ref[...]`, which only works for GMEM and SMEM.

    ## What it means

    Loads and stores of TMEM are asynchronous and have functions of their own.

    ## Why it happens

    Lane semantics say so; with Warpgroup semantics (the default from JAX 0.11.0) it ends in "Expected the same number
    of in_tmem_layouts", or in a failed search for layouts.

    ## Example

    ```python
    tmem_ref[...] = value
    result = tmem_ref[...]
    tmem_ref[...] = result + 1
    ```

    ## Use instead

    ```python
    plgpu.async_store_tmem(tmem_ref, value)
    plgpu.commit_tmem()
    result = plgpu.async_load_tmem(tmem_ref)
    plgpu.wait_load_tmem()  # since the memory is written to again
    plgpu.async_store_tmem(tmem_ref, result + 1)
    plgpu.commit_tmem()
    ```

    ## Fix safety

    Safe where numbers can be compared: every store is committed where it stands, or after the last of several to
    different Refs, and every load of what is written to later on is waited for. With Lane semantics the value also
    needs a layout that fits TMEM, so what it is made of is loaded by
    `plgpu.load(x_ref, layout=plgpu.Layout.TCGEN05, optimized=False)`, which costs speed. Where no Ref is loaded in the
    statement that stores, or for a name that only it uses, that is left to you.
    """

    code = "MGF503"
    name = "tmem-access"
    jax = "0.10.2 to 0.12.0.1"
    signatures = (
        Signature("RuntimeError", r"^(Stores to|Loads from) TMEM are asynchronous operations"),
        Signature("ValueError", r"^Expected the same number of in_tmem_layouts"),
        Signature("TypeError", r"^Stored array has layout .*, but TMEM stores expect a TiledLayout"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate, for every use in the kernel. Raises NoFix."""
        if "expect a TiledLayout" in failure.message:
            yield _laid_out(Names(source), failure)
            return
        if not failure.facts.tensor_memory:
            raise NoFix("by hand: use plgpu.async_store_tmem with plgpu.commit_tmem, and plgpu.async_load_tmem")
        names = Names(source)
        imports = Imports(names)
        uses: dict[ast.stmt, _Statement] = {}
        for use in failure.facts.tensor_memory:
            node = _expression(names, use)
            statement = names.statement(node)
            uses.setdefault(statement, _Statement(names, imports.name(_MODULE), statement)).add(node, use)
        edits = [edit for statement in uses.values() for edit in statement.edits(uses)]
        yield Candidate("Use the functions that TMEM has", (*imports.edits, *edits), needs_oracle=True)


RULES = (TmemAccess(),)


def _laid_out(names: Names, failure: Failure) -> Candidate:
    """What is stored in TMEM, loaded in the layout that goes there. Raises NoFix."""
    source, imports = names.source, Imports(names)
    module = imports.name(_MODULE)
    calls = [c for c in standing_at(names, failure.span, ast.Call) if len(c.args) > 1]
    stored = next((c.args[1] for c in calls if public(names.resolve(c.func)) == f"{_MODULE}.async_store_tmem"), None)
    if isinstance(stored, ast.Name) and isinstance(bound := names.binding(stored.id, stored), ast.expr):
        stored = bound if len(names.uses(stored.id, names.scope(stored))) == 1 else stored
    parts = [n for n in ast.walk(stored) if isinstance(n, ast.Subscript)] if stored is not None else []
    loads = [n for n in parts if isinstance(n.value, ast.Name) and isinstance(names.binding(n.value.id, n), ast.arg)]
    if not loads:
        raise NoFix("by hand: give the value a layout that fits TMEM where it is loaded, as plgpu.Layout.TCGEN05")
    whole = failure.jax and parse(failure.jax) >= _INDEX_LEFT_OUT
    edits = []
    for load in loads:
        given = place(source, load) if whole else f"{source.segment(load.value)}, {source.segment(load.slice)}"
        laid = f"{module}.load({given}, layout={module}.Layout.TCGEN05, optimized=False)"
        edits.append(Edit(*source.bounds(load), laid))
    title = "Load what is stored in TMEM in a layout that goes there"
    return Candidate(title, (*imports.edits, *edits), needs_oracle=True, cost="loads that are not coalesced")


def _expression(names: Names, use: TensorMemoryUse) -> ast.Subscript | ast.Call:
    if use.span.path != names.source.path:
        raise NoFix(f"TMEM is used in {use.span.path}")
    found: list[ast.Subscript | ast.Call] = [
        *standing_at(names, use.span, ast.Subscript),
        *standing_at(names, use.span, ast.Call),
    ]
    if found:
        return found[0]
    raise NoFix(f"how TMEM is used at line {use.span.line} cannot be seen")


@dataclass
class _Statement:
    """A statement that uses TMEM, and what becomes of it. ``module`` is what the file calls ``plgpu``."""

    names: Names
    module: str
    statement: ast.stmt
    loads: list[ast.Subscript | ast.Call] = field(default_factory=list)
    stored: ast.Subscript | ast.Call | None = None
    #: whether what it loads is written to later on
    reused: bool = False

    def add(self, node: ast.Subscript | ast.Call, use: TensorMemoryUse) -> None:
        """One of its uses."""
        if use.stores:
            self.stored = node
        elif node not in self.loads:
            self.loads.append(node)
        self.reused |= use.reused

    def edits(self, uses: Mapping[ast.stmt, "_Statement"]) -> Iterator[Edit]:
        """Everything that changes, where ``uses`` are all statements that use TMEM. Raises NoFix."""
        loads = [node for node in self.loads if node is not self.stored]
        adds = isinstance(self.statement, ast.AugAssign) and self.stored is not None
        first = adds or (self.reused and (self.stored is not None or isinstance(self.statement, ast.Return)))
        after = ["commit_tmem"] if self.stored is not None else ["wait_load_tmem"] if self.reused and not first else []
        after = [name for name in after if name != self._next() and not self._is_committed_later(uses)]
        before: list[str] = []
        fresh = self._fresh()
        loaded = ""
        if adds:
            assert self.stored is not None
            loaded = next(fresh)
            before.append(f"{loaded} = {self._load(self.stored)}")
        for node in loads:
            start, end = self.names.source.bounds(node)
            if first:
                self._check_plain(node)
                name = next(fresh)
                before.append(f"{name} = {self._load(node)}")
            yield Edit(start, end, name if first else self._load(node))
        if before:
            before.append(f"{self.module}.wait_load_tmem()")
            yield self._line_before(before)
        elif self.reused and self.stored is None:
            for node in loads:
                self._check_plain(node)
        closing = ""
        if self.stored is not None:
            edit, closing = self._store(loaded)
            yield edit
        if after or closing:
            yield from self._end(closing, after)

    def _load(self, node: ast.Subscript | ast.Call) -> str:
        function = f"{self.module}.async_load_tmem"
        if isinstance(node, ast.Subscript):
            return f"{function}({place(self.names.source, node)})"
        layout = [k for k in node.keywords if k.arg == "layout"]
        if (
            self._callee(node) != "load"
            or len(node.args) != 1
            or {k.arg for k in node.keywords} - {"layout", "optimized"}
        ):
            raise NoFix(f"how TMEM is loaded at line {node.lineno} cannot be rewritten")
        return f"{function}({', '.join(map(self.names.source.segment, (node.args[0], *layout)))})"

    def _store(self, loaded: str) -> tuple[Edit, str]:
        """What goes before the stored value, and what after it."""
        source, statement, stored = self.names.source, self.statement, self.stored
        match statement:
            case ast.Assign(targets=[ast.Subscript() as target], value=value) if target is stored:
                middle = ""
            case ast.AugAssign(target=ast.Subscript() as target, value=value) if target is stored:
                middle = f"{loaded} {_OPERATORS[type(statement.op)]} ("
            case ast.Expr(value=ast.Call(args=[ref, _], keywords=keywords) as call) if (
                call is stored and self._callee(call) == "store" and not keywords and not isinstance(ref, ast.Starred)
            ):
                start, end = source.bounds(call.func)
                return Edit(start, end, f"{self.module}.async_store_tmem"), ""
            case _:
                raise NoFix(f"how TMEM is stored to at line {statement.lineno} cannot be rewritten")
        edit = opened(source, statement, target, f"{self.module}.async_store_tmem")
        closing = "))" if middle else ")"
        if middle and isinstance(value, ast.Name | ast.Constant | ast.Attribute | ast.Subscript | ast.Call):
            middle, closing = middle.removesuffix("("), ")"
        return Edit(edit.start, edit.end, edit.new + middle), closing

    def _next(self) -> str:
        """What of ``plgpu`` is called right after the statement."""
        around = block(self.names, self.statement)
        match around[around.index(self.statement) + 1 :]:
            case [ast.Expr(value=ast.Call() as call), *_]:
                return self._callee(call)
        return ""

    def _is_committed_later(self, uses: Mapping[ast.stmt, "_Statement"]) -> bool:
        """Whether it begins or continues a run of stores to different memory, which the last of them commits."""
        around = block(self.names, self.statement)
        runs = itertools.groupby(around, lambda s: s in uses and uses[s].memory() is not None)
        run = next(found for _, group in runs if self.statement in (found := list(group)))
        if self.memory() is None or self.statement is run[-1]:
            return False
        return len({uses[statement].memory() for statement in run}) == len(run)

    def memory(self) -> ast.AST | None:
        """The parameter that it stores to, where it uses no other TMEM."""
        match self.statement:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name) as ref)]) as store if (
                store.targets[0] is self.stored and not self.loads and is_pure(self.names, store)
            ):
                binding = self.names.binding(name, ref)
                return binding if isinstance(binding, ast.arg) else None
        return None

    def _callee(self, call: ast.Call) -> str:
        return public(self.names.resolve(call.func)).removeprefix(f"{_MODULE}.")

    def _fresh(self) -> Iterator[str]:
        """Names that the file does not have."""
        taken = {n.id for n in self.names.nodes(ast.Name)} | {a.arg for a in self.names.nodes(ast.arg)}
        usual = itertools.chain(["loaded"], (f"loaded{i}" for i in itertools.count(2)))
        return (name for name in usual if name not in taken)

    def _check_plain(self, node: ast.AST) -> None:
        """Raises NoFix unless the statement computes ``node`` once and in any case, so that lines around it can."""
        for outer in itertools.takewhile(lambda n: n is not self.statement, self.names.ancestors(node)):
            if not isinstance(outer, _PLAIN):
                raise NoFix(
                    f"what line {self.statement.lineno} loads is written to later, and nothing can wait for it there"
                )

    def _line_before(self, texts: Sequence[str]) -> Edit:
        source, line = self.names.source, self.statement.lineno
        self._check_alone()
        indent = source.indentation(line)
        start = source.starts[line - 1]
        return Edit(start, start, "".join(f"{indent}{text}{source.newline}" for text in texts))

    def _end(self, closing: str, after: Sequence[str]) -> Iterator[Edit]:
        """``closing`` right behind the statement, and calls on lines after it."""
        source = self.names.source
        if after:
            self._check_alone()
        _, end = source.bounds(self.statement)
        last = self.statement.end_lineno or self.statement.lineno
        line_end = source.starts[last - 1] + len(source.line(last).rstrip("\r\n"))
        indent = source.indentation(self.statement.lineno)
        lines = "".join(f"{source.newline}{indent}{self.module}.{name}()" for name in after)
        if line_end == end:
            yield Edit(end, end, closing + lines)
        else:
            if closing:
                yield Edit(end, end, closing)
            yield Edit(line_end, line_end, lines)

    def _check_alone(self) -> None:
        """Raises NoFix unless the statement is a simple one, alone on its lines."""
        source, statement = self.names.source, self.statement
        start, end = source.bounds(statement)
        last = statement.end_lineno or statement.lineno
        rest = source.text[end : source.starts[last - 1] + len(source.line(last))].strip()
        simple = isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return)
        leads = source.text[source.starts[statement.lineno - 1] : start].strip()
        if not simple or leads or (rest and not rest.startswith("#")):
            raise NoFix(f"the statement at line {statement.lineno} does not stand alone")
