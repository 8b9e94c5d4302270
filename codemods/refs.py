"""A Ref where an array is meant, and an array where a Ref is: MGF412 and MGF413."""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .control.effects import check_own

_ALL = "0.10.2 to 0.12.0.1"
_TRACER = r"'DynamicJaxprTracer'"


class RefAsArray(Rule):
    """A Ref is computed with, or stored, as if it were the array that lies there.

    ## What it means

    A kernel's parameters are Refs: places in memory. `ref[...]` loads what lies there, `ref.at[i]` is the place of a
    part of it. Arithmetic and the functions of `jnp` and `lax` take arrays.

    ## Why it happens

    The `[...]` is forgotten, or `ref.at[i]` is written where `ref[i]` is meant.

    ## Example

    ```python
    def body(x_ref, o_ref):
        o_ref[...] = x_ref * 2
    ```

    ## Use instead

    ```python
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    ```

    ## Fix safety

    Safe: there is nothing else that it could mean. `[...]` is put behind the names that are Refs, `.at` is taken out. A
    function that other code than the kernel runs, too, is left.
    """

    code = "MGF412"
    name = "ref-as-array"
    jax = _ALL
    signatures = (
        Signature("AttributeError", r"^'AbstractRef' object has no attribute '\w+'"),
        Signature("TypeError", r"^unsupported operand type\(s\) for [^:]+: .*'TransformedRef'"),
        Signature("TypeError", rf"^unsupported operand type\(s\) for [^:]+: {_TRACER} and {_TRACER}"),
        Signature("TypeError", r"^\w+ got a Ref of type .* but a Ref can't be passed where an array is expected"),
        Signature(
            "TypeError",
            r"^\w+ requires ndarray or scalar arguments, got <class '[\w.]+\.(DynamicJaxprTracer|TransformedRef)'>",
        ),
        Signature("ValueError", r"^Attempting to pass a Ref .* to a primitive"),
        Signature("ValueError", r"^Cannot store a Ref into another Ref"),
        Signature("TransformedRefAvalError", r"^TransformedRefs cannot be abstractified"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """The Refs of the kernel's own loaded, then all that may be one, then each alone. Raises NoFix."""
        names = Names(source)
        found = list(dict.fromkeys(o for node in _at(names, failure) for o in _operands(node) if _may_be_ref(names, o)))
        place = re.search(r"at position (\d+)", failure.message)
        for node in _at(names, failure):
            if place and isinstance(node, ast.Call) and int(place[1]) < len(node.args):
                found = [o for o in found if o is node.args[int(place[1])]] or found
        if not found:
            raise NoFix("by hand: load what lies in the Ref with `[...]`")
        check_own(names, found[0], failure.kernel)
        own = [o for o in found if _is_of_kernel(names, o, failure.kernel)]
        groups = [own, found, *([o] for o in found)]
        for group in (g for g, _ in itertools.groupby(filter(None, groups))):
            texts = ", ".join(f"`{source.segment(o)}`" for o in group)
            yield Candidate(f"Load what lies in {texts}", tuple(_loaded(source, o) for o in group))


class ArrayAsRef(Rule):
    """What a Ref holds is given to a function that needs the Ref itself.

    ## What it means

    Copies, barriers and accumulators are places: `plgpu.copy_gmem_to_smem`, `plgpu.barrier_wait` and `plgpu.wgmma`
    take Refs to them. `ref[i]` loads what lies there, `ref.at[i]` is the place.

    ## Why it happens

    One of several barriers is taken as from a list, or a part of an array is to be copied.

    ## Example

    ```python
    plgpu.copy_gmem_to_smem(x_ref, smem, barriers[0])
    plgpu.barrier_wait(barriers[0])
    ```

    ## Use instead

    ```python
    plgpu.copy_gmem_to_smem(x_ref, smem, barriers.at[0])
    plgpu.barrier_wait(barriers.at[0])
    ```

    ## Fix safety

    Safe: the function has no other reading. `ref[i]` becomes `ref.at[i]` and `ref[...]` the Ref, where it is written in
    the call or has a name of its own.
    """

    code = "MGF413"
    name = "array-as-ref"
    jax = _ALL
    signatures = (
        Signature("ValueError", r"^Can only call `\w+` on a `Ref`: "),
        Signature("TypeError", r"^Expected WGMMAAbstractAccumulatorRef got "),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """The places of what the call is given, of the accumulator alone if that is meant. Raises NoFix."""
        names = Names(source)
        accumulator = "AccumulatorRef" in failure.message
        found: dict[ast.Subscript, None] = {}
        for call in _at(names, failure):
            given = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
            for value in given[:1] if accumulator else given:
                loaded = _load(names, value)
                if loaded is not None:
                    found[loaded] = None
        if not found:
            raise NoFix("by hand: give it the Ref, `ref.at[i]` for a part of one")
        texts = ", ".join(f"`{source.segment(node)}`" for node in found)
        yield Candidate(f"Give it the place of {texts}", tuple(_place(source, node) for node in found))


RULES = (RefAsArray(), ArrayAsRef())


def _at(names: Names, failure: Failure) -> Iterator[ast.expr | ast.stmt]:
    """What stands at the failing place: an expression, or the statement that stores to it."""
    span = failure.span
    if span is None or span.path != names.source.path:
        return
    near: list[ast.expr | ast.stmt] = [*names.nodes(ast.Call), *names.nodes(ast.BinOp), *names.nodes(ast.UnaryOp)]
    near += [*names.nodes(ast.Compare), *names.nodes(ast.Subscript), *names.nodes(ast.AugAssign)]
    for node in near:
        if node.lineno == span.line and names.source.span(node) == span:
            parent = names.parents[node]
            yield parent if isinstance(parent, ast.Assign | ast.AugAssign) and _is_stored(node) else node


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def _operands(node: ast.AST) -> Sequence[ast.expr]:
    """What an expression computes with, or a statement stores."""
    match node:
        case ast.BinOp(left=left, right=right):
            return (left, right)
        case ast.UnaryOp(operand=operand):
            return (operand,)
        case ast.Compare(left=left, comparators=others):
            return (left, *others)
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            return (value,)
        case ast.Call(func=function, args=args, keywords=keywords):
            given = [*args, *(k.value for k in keywords)]
            given += [e for value in given if isinstance(value, ast.Tuple | ast.List) for e in value.elts]
            return (*([function.value] if isinstance(function, ast.Attribute) else []), *given)
    return ()


def _may_be_ref(names: Names, node: ast.expr, depth: int = 4) -> bool:
    """Whether nothing says that ``node`` is no Ref: a parameter, what is unpacked, ``ref.at[...]``."""
    if _is_part(node):
        return True
    if not isinstance(node, ast.Name) or depth == 0:
        return False
    bound = names.binding(node.id, node)
    if isinstance(bound, ast.Name) and isinstance(bound.ctx, ast.Store):
        return True
    return isinstance(bound, ast.arg) or (isinstance(bound, ast.expr) and _may_be_ref(names, bound, depth - 1))


def _is_of_kernel(names: Names, node: ast.expr, kernel: str) -> bool:
    """Whether ``node`` surely is a Ref: a part of one, or a parameter of the kernel's body."""
    if not isinstance(node, ast.Name):
        return True
    bound = names.binding(node.id, node)
    home = names.home(node.id, node)
    return isinstance(bound, ast.arg) and isinstance(home, ast.FunctionDef) and home.name == kernel


def _is_part(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "at"


def _loaded(source: SourceFile, node: ast.expr) -> Edit:
    """What lies in a Ref."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        return Edit(source.bounds(node.value.value)[1], source.bounds(node.value)[1], "")
    end = source.bounds(node)[1]
    return Edit(end, end, "[...]")


def _load(names: Names, value: ast.expr) -> ast.Subscript | None:
    """The load that a value is, or that its name stands for."""
    if isinstance(value, ast.Name):
        bound = names.binding(value.id, value)
        # Whoever else reads the name may want the array.
        if not isinstance(bound, ast.expr) or isinstance(bound, ast.Name) or not _is_only_given(names, value):
            return None
        value = bound
    if not isinstance(value, ast.Subscript) or _is_part(value):
        return None
    return value


def _is_only_given(names: Names, name: ast.Name) -> bool:
    """Whether all that is done with a name is to give it to calls."""
    home = names.home(name.id, name)
    uses = names.uses(name.id, home) if home is not None else []
    return all(isinstance(names.parents[use], ast.Call | ast.keyword) for use in uses)


def _place(source: SourceFile, node: ast.Subscript) -> Edit:
    """The place of what is loaded."""
    end = source.bounds(node.value)[1]
    if isinstance(node.slice, ast.Constant) and node.slice.value is ...:
        return Edit(end, source.bounds(node)[1], "")
    return Edit(end, end, ".at")
