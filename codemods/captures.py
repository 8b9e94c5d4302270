"""MGF402: a kernel's body reads an array from outside that is no operand of it."""

import ast
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Captures, Edit, Failure
from mgpu_fix.source import Names, SourceFile, find_function
from mgpu_fix.source.names import bare_name

from .arguments import in_order
from .callees import Callees, positional, starred

PALLAS = "jax.experimental.pallas"
_MAKERS = frozenset((f"{PALLAS}.mosaic_gpu.kernel", f"{PALLAS}.kernel"))
#: what is known of an array before the kernel runs
_STATIC = frozenset(("shape", "dtype", "ndim", "size", "itemsize", "nbytes"))


class CapturedArray(Rule):
    """A kernel body uses an array, or a number that JAX computes, from outside that is not one of its arguments.

    ## What it means

    A body may close over Python's and NumPy's numbers and over Refs. Arrays have to be operands, and so do numbers
    that are only known when the program runs, as arguments of a function under `jax.jit` are: only operands get a
    place in the GPU's memory and a Ref.

    ## Why it happens

    A table, a mask, a weight or a scale is defined at module level or in the function around the kernel, and used by
    its name. If the body is that of a warp-level region, the array may also be one that the kernel computed; see
    MGF101. For a number JAX says no more than "Scalar type must match ShapedArray dtype".

    ## Example

    ```python
    WEIGHTS = jnp.arange(128, dtype=jnp.float32)

    @plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * WEIGHTS
    ```

    ## Use instead

    ```python
    @plgpu.kernel(out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    def _kernel(x_ref, weights_ref, o_ref):
        o_ref[...] = x_ref[...] * weights_ref[...]

    def kernel(x):
        return _kernel(x, WEIGHTS)
    ```

    ## Fix safety

    The body gets a parameter for each such array, behind its inputs, and loads it where it used the name. Calls in the
    same function as the kernel pass the array on; where the kernel goes elsewhere, or is the module's, a function of
    its name and arguments is put around it, so that nobody who calls it has to change. It is safe where numbers prove
    it: a number of Python's that went through `jax.jit` loses its weak type.

    Left alone are arrays that a function outside of the body reads, what the body makes of them with NumPy, and bodies
    of `pl.pallas_call`.
    """

    code = "MGF402"
    name = "captured-array"
    jax = "0.10.2 to 0.12.0"
    signatures = (
        Signature("ValueError", r"captures (non-scalar array |non-Ref )?constants \["),
        Signature("AssertionError", r"^Scalar type must match ShapedArray dtype, got: memref<"),
        Signature("AssertionError", r"^\(MemRefType\(memref<\w+>\), \w+Type\(\w+\)\)$"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate for all that the kernel closes over. Raises NoFix."""
        yield operands(failure, source)


def operands(failure: Failure, source: SourceFile) -> Candidate:
    """Passes to a kernel what it closes over. Raises NoFix."""
    captures = failure.facts.captures
    if captures is None:
        raise NoFix("by what name the kernel reads the array is not known; pass it to the kernel")
    if not all(captures.names):
        raise NoFix("one of the arrays has no name of its own: the body makes it, or reads it from an object")
    return Candidate(
        title=f"Pass {_listed(captures.names)} to the kernel",
        edits=tuple(_Kernel(source, captures).edits()),
        needs_oracle=True,
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in dict.fromkeys(names))


class _Kernel:
    """A kernel's body in the source, and what becomes of it."""

    def __init__(self, source: SourceFile, captures: Captures) -> None:
        self.source, self.names, self.captures = source, Names(source), captures
        body = find_function(source, captures.body) if captures.body.path == source.path else None
        if body is None:
            raise NoFix(f"the kernel's body stands in {captures.body.path}")
        self.body = body
        self.arrays = tuple(dict.fromkeys(captures.names))
        inside = body.body if isinstance(body.body, list) else [body.body]
        self._inside = {n for part in inside for n in ast.walk(part)}
        taken = {n.id for n in self._inside if isinstance(n, ast.Name)}
        taken |= {n.arg for n in self._inside if isinstance(n, ast.arg)} | {a.arg for a in positional(body)}
        #: how many of the body's parameters are bound before it is given to Pallas
        self.bound = 0
        self.refs = {name: _fresh(f"{_last(name).lower().strip('_')}_ref", taken) for name in self.arrays}

    def edits(self) -> Iterator[Edit]:
        """All that changes. Raises NoFix."""
        if self._is_exported():
            raise NoFix("the kernel's body is in `__all__`, and others may make kernels of it")
        yield from self._users()
        yield self._parameters()
        for name in self.arrays:
            yield from self._loads(name)

    def _is_exported(self) -> bool:
        """Whether the module offers the body itself, not a kernel that is made of it where it stands."""
        if getattr(self.body, "decorator_list", None) or not isinstance(self.names.scope(self.body), ast.Module):
            return False
        offered = self.names.members(self.source.tree).get("__all__", [])
        words = [n.value for value in offered for n in ast.walk(value) if isinstance(n, ast.Constant)]
        return getattr(self.body, "name", "") in words

    # ------------------------------------------------------------------ the body

    def _parameters(self) -> Edit:
        rest = self._refs()[self.bound + self.captures.operands :]
        if not rest:
            raise NoFix("the kernel's body has no parameter for each of its Refs")
        start = self.source.bounds(rest[0])[0]
        before = self.source.text[self.source.starts[rest[0].lineno - 1] : start]
        space = " " if before.strip() else f"{self.source.newline}{before}"
        return Edit(start, start, "".join(f"{ref},{space}" for ref in self.refs.values()))

    def _refs(self) -> Sequence[ast.arg | ast.expr]:
        """What takes the Refs: the body's parameters, or the names that its ``*refs`` are unpacked to."""
        star = self.body.args.vararg
        parameters = positional(self.body)
        if star is None or parameters:
            return parameters
        match [self.names.parents[use] for use in self.names.uses(star.arg, self.body)]:
            case [ast.Assign(targets=[ast.Tuple(elts=elements)])]:
                return elements
        return []

    def _uses(self, name: str) -> list[ast.expr]:
        """Where the body reads an array from outside of itself."""
        root = _root(name)
        loads = [n for n in self.names.loads(root) if n in self._inside]
        homes = {use: self.names.home(root, use) for use in loads}
        outer = {h for h in homes.values() if h is not self.body and h not in self._inside}
        if len(outer) != 1 or any(isinstance(n, ast.Name) and n.id == root and _stores(n) for n in self._inside):
            raise NoFix(f"what `{root}` is in the kernel's body is not known")
        read = [self._holder(use, name) for use, home in homes.items() if home in outer]
        if not any(read):
            raise NoFix(f"where the kernel's body reads `{name}` is not known")
        for node in filter(None, read):
            match self.names.parents[node]:
                case (
                    ast.Call(func=ast.Name(id="isinstance" | "type" | "callable" | "hasattr" | "getattr"))
                    | ast.Compare(ops=[ast.Is() | ast.IsNot()])
                ):
                    raise NoFix(f"line {node.lineno} asks what `{name}` is, which a Ref is not")
        return [node for node in read if node is not None]

    def _holder(self, use: ast.expr, name: str) -> ast.expr | None:
        """The expression around ``use`` that stands for the array."""
        node: ast.AST = use
        while isinstance(node, ast.expr) and len(text := ast.unparse(node)) <= len(name):
            if text == name:
                return node
            node = self.names.parents[node]
        return None

    def _loads(self, name: str) -> Iterator[Edit]:
        for use in self._uses(name):
            match self.names.parents[use]:
                case ast.Attribute(attr=attribute) if attribute in _STATIC:
                    continue
                case ast.Call(func=ast.Name(id="len")):
                    continue
                case ast.Subscript(value=value, slice=index) if value is use and _is_place(self.names, index):
                    yield Edit(*self.source.bounds(use), self.refs[name])
                case _:
                    yield Edit(*self.source.bounds(use), f"{self.refs[name]}[...]")

    # ------------------------------------------------------------------ those who call it

    def _users(self) -> Iterator[Edit]:
        """Edits that pass the arrays on wherever the kernel is called."""
        decorators = getattr(self.body, "decorator_list", [])
        if decorators:
            self._check_maker(decorators[-1])
            alone = len(decorators) == 1 and not self._is_public(self.body)
            calls = self._calls(self._function_uses()) if alone else []
            yield from map(self._called, calls) if calls else self._wrapped_body()
            return
        uses = [self.body] if isinstance(self.body, ast.Lambda) else self._function_uses()
        makers = [self._maker(use) for use in uses]
        if len({bound for _, bound in makers}) != 1:
            raise NoFix("how the kernel's body is used is not known")
        self.bound = makers[0][1]
        for maker, _ in makers:
            yield from self._made(maker)

    def _function_uses(self) -> list[ast.Name]:
        assert isinstance(self.body, ast.FunctionDef | ast.AsyncFunctionDef)
        return self.names.uses(self.body.name, self.names.scope(self.body))

    def _check_maker(self, maker: ast.expr) -> None:
        if not isinstance(maker, ast.Call) or Callees(self.names, _MAKERS, ()).of(maker) is None:
            raise NoFix(f"what runs the kernel at line {maker.lineno} is not known")

    def _maker(self, use: ast.expr) -> tuple[ast.Call, int]:
        """The call that makes a kernel of the body, and how many of its parameters are bound before."""
        parent = self.names.parents[use]
        bound = 0
        is_partial = isinstance(parent, ast.Call) and self.names.resolve(parent.func) == "functools.partial"
        if isinstance(parent, ast.Call) and is_partial and parent.args[0] is use and not starred(parent):
            bound = len(parent.args) - 1
            use, parent = parent, self.names.parents[parent]
        if not isinstance(parent, ast.Call) or use not in parent.args[:1]:
            raise NoFix(f"how the kernel's body is used at line {use.lineno} is not known")
        self._check_maker(parent)
        return parent, bound

    def _is_public(self, made: ast.AST) -> bool:
        """Whether other modules may call a kernel by the name that it is bound to."""
        name = made.id if isinstance(made, ast.Name) else getattr(made, "name", "")
        return isinstance(self.names.scope(made), ast.Module) and not str(name).startswith("_")

    def _calls(self, uses: Sequence[ast.expr]) -> list[ast.Call]:
        """The calls that are all the uses of a kernel's name, in a function; none where it also goes elsewhere."""
        calls = [call for use in uses if isinstance(call := self.names.parents[use], ast.Call) and call.func is use]
        everywhere = len(calls) < len(uses) or any(isinstance(self.names.scope(use), ast.Module) for use in uses)
        return [] if everywhere else calls

    def _made(self, maker: ast.Call) -> Iterator[Edit]:
        """The kernel that ``maker`` gives, where it is called or goes elsewhere."""
        parent = self.names.parents[maker]
        match parent:
            case ast.Call() if parent.func is maker:
                yield self._called(parent)
                return
            case ast.Assign(targets=[ast.Name(id=name) as target]) if self.names.binding(name, target) is maker:
                uses = self.names.uses(name, self.names.scope(target))
                calls = [] if self._is_public(target) else self._calls(uses)
                start, end = self.source.bounds(target)
                yield from map(self._called, calls) if calls else self._wrapped(parent, name, start)
                return
            case ast.Return() | ast.Call() | ast.keyword():
                pass
            case _:
                raise NoFix(f"what becomes of the kernel at line {maker.lineno} is not known")
        self._check_seen(maker)
        self._check_once(maker)
        for node in ast.walk(maker):
            # It is now made anew for each call.
            if isinstance(node, ast.Name) and len(self.names.bindings(node.id, node)) > 1:
                raise NoFix(f"`{node.id}`, which the kernel is declared with, is bound several times")
            if isinstance(node, ast.Attribute) and node.attr not in _STATIC and self.names.resolve(node) is None:
                raise NoFix(f"`{ast.unparse(node)}`, which the kernel is declared with, may change between its calls")
        start, end = self.source.bounds(maker)
        parameters = self._wrapper_parameters(n.id for n in ast.walk(maker) if isinstance(n, ast.Name))
        yield Edit(start, start, f"lambda {parameters}: " if parameters else "lambda: ")
        yield Edit(end, end, f"({self._arguments(parameters)})")

    def _called(self, call: ast.Call) -> Edit:
        self._check_seen(call)
        if call.keywords or starred(call) or len(call.args) != self.captures.operands:
            raise NoFix(f"how the kernel is called at line {call.lineno} is not known")
        new = self._passed()
        if call.args:
            end = self.source.bounds(in_order(call)[-1])[1]
            return Edit(end, end, f", {new}")
        end = self.source.bounds(call)[1] - 1
        return Edit(end, end, new)

    def _check_seen(self, place: ast.stmt | ast.expr) -> None:
        """Raises NoFix unless the arrays have the same names and meaning at ``place`` as in the body."""
        for name in self.arrays:
            root = _root(name)
            self._check_given(name)
            self._check_there(name, place)
            if self.names.home(root, place) is not self.names.home(root, self._uses(name)[0]):
                raise NoFix(f"`{root}` is something else where the kernel is called, at line {place.lineno}")

    def _check_there(self, name: str, place: ast.AST) -> None:
        """Raises NoFix where an array that the body reads under a condition need not be there when it is called."""
        uses = self._uses(name)
        always = [u for u in uses if not any(self._is_choice(n) for n in self.names.ancestors(u) if n in self._inside)]
        bound = self.names.binding(_root(name), uses[0])
        around = {*self.names.ancestors(place)}
        chosen = bound is None or any(self._is_choice(n) and n not in around for n in self.names.ancestors(bound))
        if not always and (name != _root(name) or chosen):
            raise NoFix(f"`{name}` is read under a condition, and need not be there where the kernel is called")

    def _is_choice(self, node: ast.AST) -> bool:
        return isinstance(node, ast.If | ast.IfExp | ast.BoolOp | ast.Try | ast.For | ast.While | ast.Match)

    def _check_given(self, name: str) -> None:
        """Raises NoFix where a function around the kernel is also called with a number of Python's for ``name``, which
        has no dtype of its own, as an operand has."""
        home = self.names.home(name, self._uses(name)[0])
        if not isinstance(home, ast.FunctionDef) or name not in {
            a.arg for a in [*positional(home), *home.args.kwonlyargs]
        }:
            return
        place = next((i for i, a in enumerate(positional(home)) if a.arg == name), len(positional(home)))
        for use in self.names.uses(home.name, self.names.scope(home)):
            call = self.names.parents[use]
            if isinstance(call, ast.Call) and call.func is use:
                given = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg == name)]
                if any(not any(isinstance(n, ast.Name) for n in ast.walk(value)) for value in given):
                    raise NoFix(
                        f"at line {call.lineno} `{name}` is a number of Python's, which has no dtype of its own"
                    )

    def _check_once(self, made: ast.stmt | ast.expr) -> None:
        """Raises NoFix where a loop makes several kernels, which the function around them would take for one."""
        for node in self.names.ancestors(made):
            if node is self.names.scope(made):
                return
            if isinstance(node, ast.For | ast.While | ast.AsyncFor | ast.comprehension):
                raise NoFix(f"the loop at line {getattr(node, 'lineno', made.lineno)} makes several kernels")

    def _wrapped_body(self) -> Iterator[Edit]:
        body = self.body
        assert isinstance(body, ast.FunctionDef)
        start = self.source.bounds(body)[0] + len("def")
        yield from self._wrapped(body, body.name, self.source.text.index(body.name, start))

    def _wrapped(self, made: ast.stmt, name: str, at: int) -> Iterator[Edit]:
        """A function behind the kernel that ``made`` makes, which gets its name and operands and passes the arrays on.
        The name stands ``at`` an offset."""
        scope, decorators = self.names.scope(made), getattr(made, "decorator_list", [])
        if isinstance(scope, ast.ClassDef):
            raise NoFix("the kernel is a method")
        if len(self.names.members(scope).get(name, ())) != 1:
            raise NoFix(f"`{name}` is bound several times, or from elsewhere")
        if any(isinstance(self.names.parents[use], ast.Attribute) for use in self.names.uses(name, scope)):
            raise NoFix(f"more of `{name}` is used than that it can be called")
        if any(self.names.resolve(maker) not in ("jax.jit", "jax.api.jit") for maker in decorators[:-1]):
            raise NoFix(f"line {decorators[0].lineno} does more with the kernel than to make it")
        if made.lineno == getattr(self.names.parents[made], "lineno", 0):
            raise NoFix(f"there is no place for a function behind line {made.lineno}")
        self._check_once(made)
        self._check_seen(made)
        taken = {n.id for n in self.names.nodes(ast.Name)} | {f.name for f in self.names.nodes(ast.FunctionDef)}
        inner = _fresh(f"_{name}", taken)
        yield Edit(at, at + len(name), inner)
        parameters = self._wrapper_parameters()
        indent, newline = self.source.indentation(made.lineno), self.source.newline
        line = made.end_lineno or made.lineno
        end = self.source.starts[line] if line < len(self.source.starts) else len(self.source.text)
        lines = ["", *([] if indent else [""]), f"{indent}def {name}({parameters}):"]
        lines.append(f"{indent}{self.source.indent}return {inner}({self._arguments(parameters)})")
        # Two blank lines behind it, too, where they are missing.
        follows = self.source.line(line + 1).strip() if line < len(self.source.starts) else ""
        lines += [""] * (1 if indent else 2) if follows else []
        first = "" if self.source.text[:end].endswith(("\n", "\r")) else newline
        yield Edit(end, end, first + "".join(f"{text}{newline}" for text in lines))

    def _wrapper_parameters(self, used: Iterable[str] = ()) -> str:
        taken = {*map(_root, self.arrays), *used}
        inputs = self._refs()[self.bound :][: self.captures.operands]
        names = [p.arg if isinstance(p, ast.arg) else self.source.segment(p) for p in inputs]
        return ", ".join(_fresh(bare_name(name) or name, taken) for name in names)

    def _arguments(self, parameters: str) -> str:
        return ", ".join([*([parameters] if parameters else []), self._passed()])

    def _passed(self) -> str:
        """The arrays as arguments, written as in the body."""
        return ", ".join(self.source.segment(self._uses(name)[0]) for name in self.arrays)


def _root(name: str) -> str:
    """The variable by which an array is reached."""
    return re.split(r"[.\[]", name)[0]


def _last(name: str) -> str:
    """What is closest to a name for the array itself."""
    return str(re.findall(r"[A-Za-z_]\w*", name)[-1])


def _is_place(names: Names, index: ast.expr) -> bool:
    """Whether an index means the same to a Ref as to an array: nothing in it counts from the end, which a Ref does not
    know, or adds a dimension."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        match part:
            case ast.Slice(step=None):
                ends = [end for end in (part.lower, part.upper) if end is not None]
                if not all(isinstance(end, ast.Constant) for end in ends):
                    return False
            case _:
                if not _counts_up(names, part):
                    return False
    return True


def _counts_up(names: Names, number: ast.AST) -> bool:
    """Whether a number is surely none below zero: a constant, the place in a loop from such a one on, a grid's or a
    warp's place, or made of those."""
    match number:
        case ast.Constant(value=value):
            return isinstance(value, int)
        case ast.BinOp(op=ast.Add() | ast.Mult() | ast.FloorDiv() | ast.Mod()):
            return _counts_up(names, number.left) and _counts_up(names, number.right)
        case ast.Call():
            return str(names.resolve(number.func)) in _PLACES
        case ast.Name():
            bound = names.binding(number.id, number)
            if isinstance(bound, ast.arg):
                return _counts(names, names.home(number.id, number))
            return isinstance(bound, ast.expr) and not isinstance(bound, ast.Name) and _counts_up(names, bound)
    return False


def _counts(names: Names, function: ast.AST | None) -> bool:
    """Whether a function is the body of a warp-level region, or of a loop that does not start below zero."""
    for maker in getattr(function, "decorator_list", []):
        called = maker.func if isinstance(maker, ast.Call) else maker
        if str(names.resolve(called)) == "jax.experimental.pallas.mosaic_gpu.warp_map":
            return True
        if isinstance(maker, ast.Call) and str(names.resolve(called)) == "jax.experimental.pallas.loop":
            return len(maker.args) == 2 and not maker.keywords and _counts_up(names, maker.args[0])
    return False


#: calls that say which one of several programs runs
_PLACES = ("jax.lax.axis_index", "jax.experimental.pallas.program_id")


def _stores(name: ast.Name) -> bool:
    return not isinstance(name.ctx, ast.Load)


def _fresh(name: str, taken: set[str]) -> str:
    """``name``, or one like it that is free, which then is taken."""
    found, i = name, 2
    while found in taken or keyword.iskeyword(found):
        found, i = f"{name}{i}", i + 1
    taken.add(found)
    return found


RULES = (CapturedArray(),)
