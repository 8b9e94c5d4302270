"""MGF401: a body returns a value where Pallas wants it stored through a Ref."""

import ast
import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Edit, Failure, Returned, Span, Tree
from mgpu_fix.source import Names, SourceError, SourceFile, Splice
from mgpu_fix.source.flow import block, ends_function, gives_nothing, is_pure, may_write, own_nodes
from mgpu_fix.source.names import FunctionNode, bare_name, find_function

from ..stores import Output, Store, Stores, grouped
from . import evident
from .bodies import Parameters, check_callers, lambda_name

#: Too many arguments for a pipeline's body are more often its indices, see MGF505.
_CALLEES = ("plgpu.kernel", "pl.kernel", "pl.core_map", "plgpu.warp_map", "pl.pallas_call")
#: Their bodies have no outputs of their own.
_NO_OUTPUTS = ("plgpu.warp_map", "pl.core_map", "pl.when")
_TOO_MANY = r"takes (from \d+ to )?\d+ positional arguments? but \d+ .*(was|were) given"


class KernelReturnsValue(Rule):
    """A kernel body returns a value, but Pallas bodies must store their results through output Refs and return None.

    ## What it means

    The function given to `pl.kernel`, `plgpu.kernel`, `pl.pallas_call`, `pl.core_map`, `plgpu.warp_map` or
    `plgpu.emit_pipeline` ended with `return value`. A body has no return value: it gets a Ref for every input and one
    for every output, and what it does not store into an output is lost.

    ## Why it happens

    The body was written like an ordinary JAX function. Most entry points then raise `The kernel function in mpmd_map
    … should return None`, or, for `return o_ref`, `returned a mutable array reference`. **`plgpu.kernel` and
    `emit_pipeline` say nothing**: they drop the value, and the output keeps whatever was in memory. A Python number
    returned to `plgpu.kernel` can surface as `Shaped arrays must be represented by ir.Values`, and a body without a
    parameter for its output as `takes 1 positional argument but 2 were given`. In a warp-specialized pipeline the error
    is one of `scan`, whose `carry input and carry output must have the same pytree structure`, under `pl.when` one of
    `cond`, whose `branch outputs must have the same pytree structure`.

    ## Example

    ```python
    @pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
    def double(x_ref, o_ref):
        return x_ref[...] * 2
    ```

    ## Use instead

    ```python
    @pl.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32), mesh=plgpu.Mesh())
    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    ```

    Several outputs are stored one by one, in the order of `out_type`. A lambda becomes a function, a missing output
    parameter is added.

    ## Fix safety

    Storing the value into the only output, which the body leaves unwritten, is safe. With several outputs, or where a
    number that is written out fills an array, the pairing follows the structure of what was returned, and the fix is
    only made where the numbers can be compared. It is unsafe where

    - the body may also write that output itself, by a store or through anything that it gives the Ref to,
    - several blocks or warpgroups run the body and it asks which one it is: each may return another value, or a row of
      the output, which then goes to the place that the body asks for,
    - a cast to the output's type goes from float to int, to a narrower int, to bool or from complex to real,
    - a returned name is that of another output than the one in its place, as in `return hi, lo`.

    Deleting the value is safe where the output surely holds it (`o_ref[...] = y; return y`, `return o_ref`). A body at
    warp level or under `pl.when` has no output: there the `return` is deleted, which is unsafe unless the body stored
    the value right before, reads it from where it stored it, or returns the number of the warp, say, and stores
    something else. Under `pl.when` the value goes into the kernel's output instead if there is one only, of that shape,
    and nothing else writes it; safe where the condition picks one of the blocks and warpgroups that compute their own
    (`wg == 0`). Where the body may write all outputs but it is not certain that they
    hold the value, it is deleted only if the numbers show that the outputs are the same without it; storing it as well
    is offered as an unsafe fix. There, deleting is unsafe if the body returns in several places, since numbers only
    tell about one, or if the value does not fit the outputs (another shape, another count, a bool or a status code).

    A body is left alone that is called for its value elsewhere in the file, or given away where that may happen: put
    into a container, returned, set as an attribute, passed to a function that does not only make a kernel of it. So is
    one whose value does not have the shape of the output, or may be None.

    A return annotation becomes `-> None`.
    """

    code = "MGF401"
    name = "kernel-returns-value"
    jax = "0.10.2 to 0.12.0"
    signatures = (
        Signature(
            "ValueError",
            r"The kernel function in (the )?(mpmd_map|core_map|pallas_call) .* should return None\. It returns",
        ),
        Signature(
            "ValueError",
            r"traced for (mpmd_map|core_map|pallas_call) returned a mutable array reference of type Ref<",
        ),
        Signature("TypeError", r"^cond branch outputs must have the same pytree structure", callee="pl.when"),
        Signature("ReturnedValueDropped", r"The kernel function in .* should return None"),
        Signature("AssertionError", r"Shaped arrays must be represented by ir\.Values", callee="plgpu.kernel"),
        *(Signature("TypeError", _TOO_MANY, callee=callee) for callee in _CALLEES),
        Signature(
            "TypeError",
            r"^scan body function carry input and carry output must have the same pytree",
            callee="plgpu.emit_pipeline_warp_specialized",
        ),
    )

    def evident(self, names: Names) -> Iterable[tuple[Span, str]]:
        """Every `return` of a body that surely gives a value, where no run is needed to know it."""
        return evident.returns(names)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Store what was returned, or delete it where that loses nothing."""
        facts = {returned.body: returned for returned in failure.facts.returned}
        if not facts:
            raise NoFix("it is not known what the body returned")
        try:
            names = Names(source)
            taken: set[str] = set()
            bodies = [_Body(source, names, returned, taken, failure) for returned in facts.values()]
            plans = itertools.product(*(body.ways() for body in bodies))
            return [_candidate(source, names, list(zip(bodies, ways, strict=True))) for ways in plans]
        except SourceError as e:
            raise NoFix(str(e)) from e


@dataclass(frozen=True)
class _Way:
    """One way to mend a body: the stores in place of each ``return``; one without any is deleted."""

    name: str
    title: str
    stores: Mapping[ast.AST, Sequence[Store]] = field(default_factory=dict)
    safe: bool = True
    needs_oracle: bool = False


class _Body:
    """A function that returned something, and how it could do without. Raises NoFix where it cannot.

    Names that it needs in the file, beside those that are ``taken``, are added to these.
    """

    def __init__(self, source: SourceFile, names: Names, facts: Returned, taken: set[str], failure: Failure) -> None:
        self.names, self.facts = names, facts
        self.function = _find(source, facts)
        self.statement = names.statement(self.function)
        while source.segment(self.statement).startswith("elif"):
            self.statement = names.statement(names.parents[self.statement])
        self.exits = [(node, e) for node, e in _exits(self.function) if not gives_nothing(names, e)]
        if not self.exits:
            raise NoFix(f"`{facts.body.name}` has no `return` with a value of its own")
        check_callers(names, self.function)
        if isinstance(self.function, ast.Lambda):
            self.name, self.alone = lambda_name(names, self.function, self.statement, taken)
            taken.add(self.name)
        # What is under a condition stores into the outputs of the kernel around it.
        self.owner = _around(names, self.function, failure.kernel) if facts.entry == "pl.when" else self.function
        self.signature = Parameters.of(names, self.owner, facts) if self.owner else Parameters(())
        conditional = [r for r in failure.facts.returned if r.entry == "pl.when"]
        if facts.entry == "pl.when" and (self.signature.added or len(conditional) > 1):
            self.signature = Parameters(())
        self.outputs = [
            Output.of(p.name, p.tree or Tree("leaf", shape=p.shape, dtype=p.dtype))
            for p in self.signature.refs
            if p.role == "output" and p.name
        ]
        # What stores by itself and ends the body stores nothing where the others end it.
        apart = {node for node, _ in _exits(self.function)}.difference(node for node, _ in self.exits)
        self.written = {
            o.text
            for o in self.outputs
            if o.text in facts.written or (self.owner and may_write(names, self.owner, o.text, apart))
        }
        self.sole, self.single = len(self.exits) == 1, sum(len(o.leaves()) for o in self.outputs) == 1
        along = facts.along if facts.entry in ("plgpu.kernel", "pl.kernel") else ()
        self.stores = Stores(names, self.function, self.signature.refs, self.written, self.sole, self.single, along)

    def ways(self) -> list[_Way]:
        """Best first. Raises NoFix."""
        drop = _Way("delete", "Delete the returned value, which goes nowhere")
        if self.facts.entry == "pl.when" and self.single and not self.written:
            with contextlib.suppress(NoFix):
                return [self._store_under_condition(), replace(drop, safe=False)]
        if self.facts.entry in _NO_OUTPUTS and (not self.outputs or self.facts.entry == "pl.when"):
            idle = all(_is_idle(self.names, self.function, node, e) for node, e in self.exits)
            return [replace(drop, safe=idle)]
        all_written = bool(self.outputs) and len(self.written) == len(self.outputs)
        held = _Way("delete", "Delete the returned value, which is stored already")
        if all_written and self._holds_all():
            return [held]
        # The numbers only tell about the `return` that ran.
        keep = _Way("delete", "Delete the returned value, and keep what the body stores", {}, self.sole, True)
        try:
            target = self._target()
            stores: dict[ast.AST, list[Store]] = {
                node: self.stores.plan(node, e, self.facts.value, target) for node, e in self.exits
            }
        except NoFix:
            if not all_written:
                raise
            return [replace(keep, safe=False)]
        made = [store for stores_ in stores.values() for store in stores_]
        stored = {name for store in made for name in store.parameters}
        into = [o.text for o in self.outputs if o.text in stored]
        if not into:
            return [held]
        one_of_many = self.facts.varies and not self.facts.entry.startswith("plgpu.emit_pipeline")
        crossed = any(_is_crossed(e, target) for _, e in self.exits)
        safe = not (one_of_many or crossed or self.written & stored or any(store.lossy for store in made))
        # Which Ref is which in ``*refs`` is not certain.
        uncertain = bool(not self.single or self.written or self.function.args.vararg)
        way = _Way("store", self._title(into), stores, safe, uncertain or any(store.spread for store in made))
        return [keep, way] if all_written else [way]

    def _store_under_condition(self) -> _Way:
        """The store into the kernel's only output, which nothing else writes to. Raises NoFix."""
        [output] = self.outputs
        if output.tree.kind != "leaf" or self.facts.value.kind != "leaf":
            raise NoFix("it returns several values")
        stores: dict[ast.AST, list[Store]] = {
            node: self.stores.plan(node, e, self.facts.value, output) for node, e in self.exits
        }
        made = [store for stores_ in stores.values() for store in stores_]
        safe = _pinned(self.names, self.function).issuperset(self.facts.along) and not any(
            store.lossy for store in made
        )
        return _Way("store", self._title([output.text]), stores, safe, any(store.spread for store in made))

    def _target(self) -> Output:
        """The outputs that the returned value is for: all, or else those that the body does not write by itself."""
        value = self.facts.value
        unwritten = [o for o in self.outputs if o.text not in self.written]
        for outputs in (self.outputs, unwritten):
            for target in (*outputs[: len(outputs) == 1], Output.group(outputs), *_by_key(value, outputs)):
                if target.takes(value):
                    return target
        if value.kind == "dict":
            raise NoFix(f"the keys {_and(value.keys)} that it returns do not match its outputs")
        returned, outputs_ = len(value.leaves()), sum(len(o.leaves()) for o in self.outputs)
        raise NoFix(f"it returns {_count(returned, 'value')} for {_count(outputs_, 'output')}")

    def _holds_all(self) -> bool:
        leaves = [leaf for output in self.outputs for leaf in output.leaves()]
        return all(any(self.stores.holds(node, e, leaf) for leaf in leaves) for node, e in self.exits)

    def _title(self, into: Sequence[str]) -> str:
        added = self.signature.added
        store = f"tore the returned {_plural(into, 'value')} into {_and(into)}"
        return f"Add the output {_plural(added, 'parameter')} {_and(added)} and s{store}" if added else f"S{store}"

    def change(self, splice: Splice, way: _Way) -> None:
        """Make the edits of ``way``, which are in the statements of ``splice``."""
        if isinstance(self.function, ast.Lambda):
            self._name_lambda(splice, way)
            return
        if self.signature.added:
            extended = self.signature.extended
            splice.on(self.function, lambda f: f.with_changes(params=extended(f.params)), cst.FunctionDef)
        if self.function.returns and not _is_none(self.function.returns):
            splice.on(self.function, _returning_none, cst.FunctionDef)
        for node, expression in self.exits:
            assert isinstance(node, ast.Return)
            last = ends_function(self.names, node)
            bare = not last or (not self._does(way, node, expression) and not _can_go(block(self.names, node), node))
            splice.replace(node, functools.partial(self._replacement, way, node, expression, bare))

    def _does(self, way: _Way, node: ast.AST, expression: ast.expr) -> bool:
        """Whether anything is left to do where ``node`` stands."""
        return bool(way.stores.get(node)) or not is_pure(self.names, expression)

    def _replacement(
        self, way: _Way, node: ast.AST, expression: ast.expr, bare: bool, old: Any
    ) -> list[cst.BaseSmallStatement]:
        value = old.body if isinstance(old, cst.Lambda) else old.value
        made = [store.build(value) for store in way.stores.get(node, ())]
        if not made and not is_pure(self.names, expression):
            made = [cst.Expr(grouped(value))]
        return [*made, cst.Return()] if bare else made

    def _name_lambda(self, splice: Splice, way: _Way) -> None:
        """Turn the lambda into a function, defined before the statement that holds it or, where that only names the
        lambda, in its place."""
        [(node, expression)] = self.exits
        bare = not self._does(way, node, expression)
        made: list[cst.FunctionDef] = []

        def take(old: cst.Lambda) -> cst.Name:
            lines = [cst.SimpleStatementLine([s]) for s in self._replacement(way, node, expression, bare, old)]
            params = self.signature.extended(old.params)
            made.append(cst.FunctionDef(cst.Name(self.name), params, cst.IndentedBlock(lines)))
            return cst.Name(self.name, lpar=old.lpar, rpar=old.rpar)

        splice.on(self.function, take, cst.Lambda)
        if self.alone:
            splice.on_line_of(self.statement, lambda line: _instead_of(line, made[0]))
        else:
            splice.insert_before(self.statement, lambda: made[0])


def _candidate(source: SourceFile, names: Names, chosen: Sequence[tuple[_Body, _Way]]) -> Candidate:
    ways = [way for _, way in chosen]
    return Candidate(
        title="; ".join(dict.fromkeys(way.title for way in ways)),
        edits=tuple(_edits(source, names, chosen)),
        applicability=Applicability.SAFE if all(way.safe for way in ways) else Applicability.UNSAFE,
        name=ways[0].name,
        needs_oracle=any(way.needs_oracle for way in ways),
    )


def _edits(source: SourceFile, names: Names, chosen: Sequence[tuple[_Body, _Way]]) -> Iterator[Edit]:
    """One edit for each body that lies in no other one."""
    statements = {body.statement: None for body, _ in chosen}
    last_first = chosen[::-1]
    for outer in statements:
        if any(parent in statements for parent in names.ancestors(outer)):
            continue
        splice = Splice(source, outer)
        # A line is replaced before a lambda that it holds goes ahead of it, and the last lambda before the first.
        for body, way in sorted(last_first, key=lambda c: isinstance(c[0].function, ast.Lambda)):
            if body.statement is outer or outer in names.ancestors(body.statement):
                body.change(splice, way)
        yield splice.edit()


def _find(source: SourceFile, facts: Returned) -> FunctionNode:
    name = facts.body.name
    if facts.body.path != source.path:
        raise NoFix(f"`{name}` stands in {facts.body.path}")
    function = find_function(source, facts.body)
    if function is None:
        raise NoFix(f"`{name}` is not found at line {facts.body.line}")
    suspends = any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in own_nodes(function))
    if suspends or isinstance(function, ast.AsyncFunctionDef):
        raise NoFix(f"`{name}` is a generator or a coroutine")
    return function


def _exits(function: FunctionNode) -> Iterator[tuple[ast.Return | ast.Lambda, ast.expr]]:
    """Where a function's own value comes from: the node that gives it, and the expression."""
    if isinstance(function, ast.Lambda):
        yield function, function.body
        return
    for node in own_nodes(function):
        if isinstance(node, ast.Return) and node.value:
            yield node, node.value


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _can_go(around: Sequence[ast.stmt], node: ast.stmt) -> bool:
    """Whether ``node`` can be taken out of its block: the block has others, on other lines."""
    return len(around) > 1 and all(s is node or (s.end_lineno or 0) < node.lineno for s in around)


def _by_key(value: Tree, outputs: Sequence[Output]) -> list[Output]:
    """The outputs as the dict that ``value`` is, where its keys name them."""
    if value.kind != "dict" or len(value.keys) != len(outputs):
        return []
    named = [[o for o in outputs if key in (o.text, bare_name(o.text))] for key in value.keys]
    if any(len(found) != 1 for found in named):
        return []
    return [Output.group([found[0] for found in named], value.keys)]


def _is_crossed(expression: ast.expr, target: Output) -> bool:
    """Whether a tuple or list names a value like an output other than the one that it would be stored into."""
    match expression:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if len(elements) == len(target.parts):
            ours = [bare_name(part.text) for part in target.parts]
            named = [bare_name(e.id) if isinstance(e, ast.Name) else "" for e in elements]
            return any(name in ours and name != our for name, our in zip(named, ours, strict=True))
    return False


def _around(names: Names, function: FunctionNode, kernel: str) -> FunctionNode | None:
    """The body of ``kernel``, if its conditions alone, one in another, lead to ``function``."""
    outer = next((n for n in names.ancestors(function) if isinstance(n, ast.FunctionDef)), None)
    while outer and any(_is_when(names, d) for d in outer.decorator_list):
        outer = next((n for n in names.ancestors(outer) if isinstance(n, ast.FunctionDef)), None)
    statements = [n for n in names.ancestors(function) if isinstance(n, ast.For | ast.While)]
    if outer is None or outer.name != kernel or any(outer in names.ancestors(s) for s in statements):
        return None
    return outer


def _is_when(names: Names, decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and names.resolve(decorator.func) == "jax.experimental.pallas.when"


def _pinned(names: Names, function: FunctionNode) -> set[str]:
    """Axes along which one program alone gets to ``function``: a condition compares its index with something."""
    functions = [n for n in (function, *names.ancestors(function)) if isinstance(n, ast.FunctionDef)]
    tests = [d.args[0] for f in functions for d in f.decorator_list if isinstance(d, ast.Call) and _is_when(names, d)]
    found: set[str] = set()
    for test in tests:
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and len(test.ops) == 1:
            for side in (test.left, test.comparators[0]):
                bound = names.binding(side.id, side) if isinstance(side, ast.Name) else side
                if isinstance(bound, ast.Call) and _is_axis_index(names, bound) and len(bound.args) == 1:
                    found.update(str(n.value) for n in ast.walk(bound.args[0]) if isinstance(n, ast.Constant))
    return found


def _is_idle(names: Names, function: FunctionNode, node: ast.AST, expression: ast.expr) -> bool:
    """Whether nobody can have meant what ``node`` returns to be stored: it is read from where ``function`` stored it,
    it was stored right before, or it is only who runs the function, which stores something else."""
    if not isinstance(node, ast.Return):
        return False
    if isinstance(expression, ast.Tuple | ast.List):
        return all(_is_idle(names, function, node, element) for element in expression.elts)
    text = ast.unparse(expression)
    assigned = [n for n in own_nodes(function) if isinstance(n, ast.Assign)]
    stores = {ast.unparse(t): n for n in assigned for t in n.targets if isinstance(t, ast.Subscript)}
    around = block(names, node)
    before = around[around.index(node) - 1] if around[0] is not node else None
    if text in stores or any(before is n and text == ast.unparse(n.value) for n in stores.values()):
        return True
    bound = names.members(function).get(text, [])
    who = any(isinstance(n, ast.arg) or _is_axis_index(names, n) for n in bound)
    return bool(stores) and len(bound) == 1 and who


def _is_axis_index(names: Names, binding: ast.AST) -> bool:
    """Whether what binds a name is ``name = lax.axis_index(…)``."""
    return isinstance(binding, ast.Call) and names.resolve(binding.func) == "jax.lax.axis_index"


def _returning_none(function: cst.FunctionDef) -> cst.FunctionDef:
    assert function.returns
    return function.with_changes(returns=function.returns.with_changes(annotation=cst.Name("None")))


def _instead_of(line: cst.SimpleStatementLine, function: cst.FunctionDef) -> cst.FunctionDef:
    comment = line.trailing_whitespace.comment
    above = [*line.leading_lines, *([cst.EmptyLine(comment=comment)] if comment else [])]
    return function.with_changes(leading_lines=above)


def _and(names: Iterable[str]) -> str:
    """``a``, ``b`` and ``c``."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _plural(things: Sequence[str], noun: str) -> str:
    return noun if len(things) == 1 else f"{noun}s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


RULES = (KernelReturnsValue(),)
