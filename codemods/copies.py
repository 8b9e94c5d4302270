"""MGF404: an asynchronous copy between Refs of different shapes or dtypes."""

import ast
import re
from collections.abc import Iterable, Sequence

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .allocations import allocations
from .callees import public
from .imports import Imports
from .places import standing_at

_PLGPU = "jax.experimental.pallas.mosaic_gpu."
#: Copies by their name, with the place of the operand in SMEM, and that in GMEM.
_COPIES = {f"{_PLGPU}copy_smem_to_gmem": (0, 1), f"{_PLGPU}copy_gmem_to_smem": (1, 0)}
_PARAMETERS = ("src", "dst")


class CopyShapeOrDtype(Rule):
    """A copy between GMEM and SMEM whose two sides differ in shape or dtype.

    ## What it means

    `plgpu.copy_smem_to_gmem` and `plgpu.copy_gmem_to_smem` move bytes: both Refs must have the same shape and dtype.

    ## Why it happens

    The scratch memory is larger than what is in it, or the Ref in GMEM lacks the index of the part that a block works
    on. Before JAX 0.11.2 Lane semantics say "Expected the SMEM reference to have the same shape".

    ## Example

    ```python
    s[pl.ds(0, 128)] = x_ref[...]  # s has 256 elements
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(s, o_ref)
    ```

    ## Use instead

    ```python
    s[pl.ds(0, 128)] = x_ref[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(s.at[pl.ds(0, 128)], o_ref)
    ```

    ## Fix safety

    Safe where the kernel uses one part only of a larger SMEM and numbers show that the result is right, as those of a
    reference do: another Ref may have been meant. Which of the two has the wrong size otherwise, and which part of it
    is meant, is left to you. No copy converts: SMEM that is declared for this one body gets the dtype of what lies in
    GMEM, which also takes numbers that prove it.
    """

    code = "MGF404"
    name = "copy-shape-or-dtype"
    jax = "0.10.2 to 0.12.0.1"
    signatures = (
        Signature("ValueError", r"^Expected shapes to match, but src has shape .* and dst has"),
        Signature("ValueError", r"^Expected source shape to be \(.*\), but got \("),
        Signature("ValueError", r"^Expected the SMEM reference to have the same shape as the transformed slice"),
        Signature("ValueError", r"^Expected dtypes to match but src had type .* and dst had type"),
        Signature("ValueError", r"^Expected same element type, got "),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: the part of SMEM that the kernel uses is what is copied. Raises NoFix."""
        if re.match("Expected dtypes|Expected same element type", failure.message):
            yield _of_one_dtype(Names(source), failure)
            return
        if "partitioned" in failure.message:
            raise NoFix("by hand: one side must be the other, shared by the blocks of a cluster, in shape")
        names = Names(source)
        memory, other = _sides(names, failure)
        smem, gmem = _shapes(failure.message)
        if len(smem) < len(gmem) or any(s < g for s, g in zip(smem[::-1], gmem[::-1], strict=False)):
            raise NoFix(
                f"by hand: say which part of `{source.segment(other)}` is copied; it has shape {gmem}, not {smem}"
            )
        part, copied = _part(names, memory)
        ends = (source.bounds(use)[1] for use in copied)
        edits = tuple(Edit(end, end, f".at[{part}]") for end in ends)
        yield Candidate(f"Copy the part of `{memory.id}` that is used", edits, needs_oracle=True)


RULES = (CopyShapeOrDtype(),)
_CONVERT = "by hand: store what is loaded from the one with .astype into the other; a copy converts nothing"
#: what an array of JAX's holds
_DTYPE = re.compile(r"(bool|u?int\d+|b?float\d+\w*)")
#: calls in an index that give the same whenever they are made
_PURE = ("jax.experimental.pallas.ds", "jax.experimental.pallas.dslice", "jax.lax.axis_index")


def _operands(names: Names, call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """What a copy is given, first that in SMEM; None where it is no copy, or that is not written out."""
    places = _COPIES.get(public(names.resolve(call.func)))
    if places is None or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    given = dict(zip(_PARAMETERS, call.args, strict=False))
    given |= {k.arg: k.value for k in call.keywords if k.arg in _PARAMETERS}
    if len(given) < len(_PARAMETERS):
        return None
    memory, other = (given[_PARAMETERS[place]] for place in places)
    return memory, other


def _sides(names: Names, failure: Failure) -> tuple[ast.Name, ast.expr]:
    """The copy's Ref in SMEM, all of it, and the other one."""
    operands = next(filter(None, (_operands(names, call) for call in standing_at(names, failure.span, ast.Call))), None)
    if operands is None:
        raise NoFix("by hand: give both Refs of the copy the same shape")
    memory, other = operands
    if not isinstance(memory, ast.Name):
        raise NoFix(f"by hand: `{names.source.segment(memory)}` and `{names.source.segment(other)}` differ in shape")
    return memory, other


def _of_one_dtype(names: Names, failure: Failure) -> Candidate:
    """The SMEM of a copy declared with the dtype of the other side. Raises NoFix."""
    said = re.search(r"src had type (\w+) and dst had type (\w+)", failure.message)
    found = next(filter(None, (_operands(names, call) for call in standing_at(names, failure.span, ast.Call))), None)
    calls = standing_at(names, failure.span, ast.Call)
    if said is None or found is None or not all(map(_DTYPE.fullmatch, said.groups())):
        raise NoFix(_CONVERT)
    inward = any(public(names.resolve(call.func)) == f"{_PLGPU}copy_gmem_to_smem" for call in calls)
    dtype = said[1] if inward else said[2]
    declared = [c for c in allocations(names, found[0]) if public(names.resolve(c.func)) == f"{_PLGPU}SMEM"]
    if len(declared) != 1:
        raise NoFix(_CONVERT)
    given = [*declared[0].args[1:2], *(k.value for k in declared[0].keywords if k.arg == "dtype")]
    if len(given) != 1:
        raise NoFix(_CONVERT)
    imports = Imports(names)
    edit = Edit(*names.source.bounds(given[0]), f"{imports.name('jax.numpy')}.{dtype}")
    return Candidate(f"Declare the SMEM as {dtype}", (edit, *imports.edits), needs_oracle=True)


def _shapes(message: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the two sides, first that in SMEM, which is what all of the messages name first."""
    first, second = (tuple(map(int, re.findall(r"\d+", text))) for text in re.findall(r"\(([\d, ]*)\)", message)[:2])
    return first, second


def _part(names: Names, memory: ast.Name) -> tuple[str, list[ast.Name]]:
    """The index of the one part of a Ref that all of a kernel uses, but for copies; and those. Raises NoFix."""
    home = names.home(memory.id, memory)
    if home is None or not isinstance(names.binding(memory.id, memory), ast.arg):
        raise NoFix(f"by hand: `{memory.id}` is larger than what it is copied to or from")
    found: dict[str, ast.expr] = {}
    copied: list[ast.Name] = []
    for use in names.uses(memory.id, home):
        index = _index(names, use)
        if index is not None:
            found[ast.unparse(index)] = index
        elif _is_copied(names, use):
            copied.append(use)
        elif not _is_described(names, use):
            raise NoFix(f"by hand: all of `{memory.id}` is used at line {use.lineno}, so it may have the wrong size")
    if any((use.lineno, use.col_offset) < (memory.lineno, memory.col_offset) for use in copied):
        # JAX had nothing to say of that one, so it fits.
        raise NoFix(f"by hand: all of `{memory.id}` is copied before line {memory.lineno}, too")
    if len(found) != 1:
        raise NoFix(f"by hand: say which part of `{memory.id}` is copied; {len(found) or 'no'} parts of it are used")
    [index] = found.values()
    if isinstance(index, ast.Constant) and index.value is ...:
        raise NoFix(f"by hand: all of `{memory.id}` is used, so it may have the wrong size")
    if not _is_plain(names, index):
        raise NoFix(
            f"by hand: whether `{names.source.segment(index)}` is the same part of `{memory.id}` here is not known"
        )
    for name in (node for node in ast.walk(index) if isinstance(node, ast.Name)):
        if not all(_is_same(names, name, use) for use in copied):
            raise NoFix(f"by hand: `{name.id}`, which says what part of `{memory.id}` is used, may be another one here")
    return names.source.segment(index), copied


def _is_plain(names: Names, index: ast.AST) -> bool:
    """Whether an index is made of names and numbers alone, so that it means the same wherever these do."""
    match index:
        case ast.Call(keywords=[]):
            if public(names.resolve(index.func)) not in _PURE:
                return False
            parts: Sequence[ast.AST] = index.args
        case ast.Tuple():
            parts = index.elts
        case ast.Slice():
            parts = [end for end in (index.lower, index.upper, index.step) if end is not None]
        case ast.BinOp():
            parts = [index.left, index.right]
        case ast.UnaryOp():
            parts = [index.operand]
        case _:
            return isinstance(index, ast.Name | ast.Constant)
    return all(_is_plain(names, part) for part in parts)


def _is_same(names: Names, name: ast.Name, there: ast.AST) -> bool:
    """Whether a name surely stands for the same value ``there``: it has one binding, which no loop makes anew."""
    home = names.home(name.id, name)
    if home is None or home is not names.home(name.id, there):
        return home is None and names.home(name.id, there) is None
    bound = names.binding(name.id, name)
    if bound is None or isinstance(home, ast.Module):
        return bound is not None
    return isinstance(bound, ast.arg) or not any(isinstance(n, ast.For | ast.While) for n in names.ancestors(bound))


def _index(names: Names, use: ast.Name) -> ast.expr | None:
    """What a Ref is indexed by where it is used."""
    holder = names.parents[use]
    if isinstance(holder, ast.Attribute) and holder.attr == "at":
        holder = names.parents[holder]
        return holder.slice if isinstance(holder, ast.Subscript) else None
    return holder.slice if isinstance(holder, ast.Subscript) and holder.value is use else None


def _is_copied(names: Names, use: ast.Name) -> bool:
    """Whether a Ref is an operand of a copy, all of it."""
    holder = names.parents[use]
    call = names.parents[holder] if isinstance(holder, ast.keyword) else holder
    return isinstance(call, ast.Call) and use in (_operands(names, call) or ())


def _is_described(names: Names, use: ast.Name) -> bool:
    """Whether a Ref is only asked for its shape or dtype."""
    holder = names.parents[use]
    return isinstance(holder, ast.Attribute) and holder.attr in ("shape", "dtype", "ndim")
