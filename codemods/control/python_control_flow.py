"""MGF405: Python decides by a value that is only known on the GPU."""

import ast
from collections.abc import Iterable

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from ..imports import Imports
from .branches import branches, choice
from .conditions import Conditions
from .effects import check_own
from .loops import loop
from .slices import slices

_BY_HAND = "by hand: use @pl.when, @pl.loop, jnp.where, `&` and pl.ds; mgpu-fix explain MGF405 has a table"
#: what NumPy computes of arrays, and jax.numpy under the same name
_FUNCTIONS = """
abs absolute add arctan arctan2 array asarray ceil clip concatenate cos cosh cumsum divide dot equal exp exp2
expand_dims expm1 float_power floor floor_divide fmax fmin full_like greater greater_equal isfinite isinf isnan less
less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul max maximum mean min
minimum mod multiply negative not_equal ones_like power prod reciprocal remainder reshape right_shift round sign sin
sinh sqrt square squeeze stack subtract sum tan tanh transpose true_divide where zeros_like
"""
_SHARED = frozenset(_FUNCTIONS.split())


class PythonControlFlow(Rule):
    """Python's `if`, `while`, `range`, `and` or `int` is given a value that is only known on the GPU.

    ## What it means

    A kernel's body runs once, in Python, to be traced. What it loads, and where a block stands in the grid, are
    placeholders then: they can be computed with, and Python cannot decide by them.

    ## Why it happens

    What looks like a number is one of JAX's: a loaded element, `lax.axis_index(...)`, the counter of a `pl.loop`.

    ## Example

    ```python
    i = lax.axis_index("i")
    if i > 3:
        o_ref[i] = x_ref[i]
    ```

    ## Use instead

    ```python
    @pl.when(i > 3)
    def _():
        o_ref[i] = x_ref[i]
    ```

    | Python | in a kernel |
    |---|---|
    | `if c: ...` | `@pl.when(c)` |
    | `if c: return` | the rest under the opposite `pl.when` |
    | `a if c else b` | `jnp.where(c, a, b)`, or `lax.cond` |
    | `for j in range(n)` | `@pl.loop(0, n)`, or `lax.fori_loop` where steps hand on values |
    | `a and b`, `a or b`, `not a` | `a & b`, `a \\| b`, the opposite comparison |
    | `ref[i : i + n]` | `ref[pl.ds(i, n)]` |
    | `min(a, b)`, `max(a, b)` | `jnp.minimum(a, b)`, `jnp.maximum(a, b)` |
    | `np.exp(a)` | `jnp.exp(a)` |
    | `int(a)`, `float(a)` | `a.astype(jnp.int32)` |

    ## Fix safety

    Safe where the code does the same in JAX's words. What stands behind `and`, or in both branches of a `jnp.where`,
    is computed always then, so that it is left where it loads an element or calls something unknown. A `jnp.where` of
    loaded values needs numbers that prove it; else `lax.cond` chooses, which is also what Mosaic GPU has for arrays.
    `while`, `break`, `assert` and most `return`s in what depends on the value are left to you. So is what changes
    Python's own objects there (a list, an attribute, a `nonlocal` name) or calls something unknown, since JAX traces
    both branches, and a loop's body once; and a function that other code than the kernel runs, too. Of NaN,
    `jnp.maximum` makes NaN, and Python's `max` the other number.
    """

    code = "MGF405"
    name = "python-control-flow"
    jax = "any"
    choices = ("where", "cond")
    signatures = (
        Signature("TracerBoolConversionError", r"^Attempted boolean conversion of traced array"),
        Signature("TracerIntegerConversionError", r"^The __index__\(\) method was called on traced array"),
        Signature("ConcretizationTypeError", r"^Abstract tracer value encountered where concrete value is expected"),
        Signature("TracerArrayConversionError", r"^The numpy\.ndarray conversion method __array__\(\) was called on"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """The same in JAX's words. Raises NoFix."""
        names = Names(source)
        if failure.span is None or failure.span.path != source.path:
            raise NoFix(_BY_HAND)
        found = [n for n in ast.walk(source.tree) if isinstance(n, ast.expr) and n.lineno == failure.span.line]
        at = [n for n in found if source.span(n) == failure.span]
        if not at:
            raise NoFix(_BY_HAND)
        check_own(names, at[0], failure.kernel)
        yield from _answers(names, at[0])


def _answers(names: Names, node: ast.expr) -> Iterable[Candidate]:
    """What becomes of the place at which Python would have to decide."""
    if isinstance(node, ast.Call) and not _decides(names, node):
        return [_call(names, node)]
    if isinstance(node, ast.Subscript) and not _decides(names, node):
        return [slices(names, node)]
    condition = node
    while isinstance(parent := names.parents[condition], ast.BoolOp | ast.UnaryOp | ast.Compare):
        condition = parent
    match parent:
        case ast.If() if condition is parent.test:
            return branches(names, _outermost(names, parent))
        case ast.IfExp() if condition is parent.test:
            return choice(names, parent)
        case ast.While() | ast.Assert():
            raise NoFix(_BY_HAND)
    if not isinstance(condition, ast.BoolOp | ast.UnaryOp | ast.Compare):
        raise NoFix(_BY_HAND)
    imports = Imports(names)
    text = Conditions(names, imports).text(condition)
    if isinstance(parent, ast.BinOp | ast.Attribute | ast.Subscript):
        text = f"({text})"
    start, end = names.source.bounds(condition)
    return [Candidate("Join the conditions with & and |", (Edit(start, end, text), *imports.edits))]


def _decides(names: Names, node: ast.expr) -> bool:
    """Whether ``node`` is a condition by itself."""
    parent = names.parents[node]
    conditional = isinstance(parent, ast.If | ast.IfExp | ast.While | ast.Assert) and parent.test is node
    return conditional or isinstance(parent, ast.BoolOp | ast.UnaryOp)


def _outermost(names: Names, statement: ast.If) -> ast.If:
    """The ``if`` that an ``elif`` belongs to."""
    parent = names.parents[statement]
    while isinstance(parent, ast.If) and parent.orelse == [statement] and parent.col_offset == statement.col_offset:
        statement, parent = parent, names.parents[parent]
    return statement


def _call(names: Names, call: ast.Call) -> Candidate:
    source, imports = names.source, Imports(names)
    parent = names.parents[call]
    dotted = names.resolve(call.func) or ""
    start, end = source.bounds(call.func)
    if dotted.startswith("numpy.") and dotted.removeprefix("numpy.") in _SHARED:
        made = f"{imports.name('jax.numpy')}.{dotted.removeprefix('numpy.')}"
        return Candidate(f"Compute with {made}", (Edit(start, end, made), *imports.edits))
    own = call.func.id if isinstance(call.func, ast.Name) and not names.bindings(call.func.id, call) else ""
    if own == "range" and isinstance(parent, ast.For) and parent.iter is call:
        return loop(names, parent)
    plain = not call.keywords and not any(isinstance(a, ast.Starred) for a in call.args)
    if own in ("min", "max") and plain and len(call.args) == 2:
        made = f"{imports.name('jax.numpy')}.{own}imum"
        return Candidate(f"Compute with {made}", (Edit(start, end, made), *imports.edits))
    if own == "int" and plain and len(call.args) == 1:
        value = source.segment(call.args[0])
        tight = isinstance(call.args[0], ast.Name | ast.Call | ast.Subscript | ast.Attribute)
        made = f"{value if tight else f'({value})'}.astype({imports.name('jax.numpy')}.int32)"
        edit = Edit(*source.bounds(call), made)
        return Candidate("Convert with astype", (edit, *imports.edits))
    raise NoFix(_BY_HAND)


RULES = (PythonControlFlow(),)
