"""MGF409: indices of Refs that Mosaic GPU has no address for."""

import ast
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .places import standing_at

_ALL = "0.10.2 to 0.12.0.1"


class IndexOfRef(Rule):
    """A Ref is indexed with something that Mosaic GPU has no address for.

    ## What it means

    A Ref is indexed with whole numbers and slices without a step; what they reach must lie within it. An accumulator is
    stored to as a whole.

    ## Why it happens

    NumPy's indexing with arrays and steps is for arrays. A slice from `pl.ds(start, size)` with a start that is known
    already is checked against the Ref. `/` gives a float, also of whole numbers.

    ## Example

    ```python
    o_ref[...] = x_ref[row / 2]
    ```

    ## Use instead

    ```python
    o_ref[...] = x_ref[row // 2]
    ```

    What `x_ref[::2]` means takes a loop:

    ```python
    @pl.loop(0, 64)
    def _(row):
        o_ref[row] = x_ref[2 * row]
    ```

    ## Fix safety

    `/` in an index becomes `//`, which is safe where numbers prove it, of a reference or a golden file. The rest is
    left.
    """

    code = "MGF409"
    name = "index-of-ref"
    jax = _ALL
    signatures = (
        Signature("NotImplementedError", r"^int_indexer_shape non-empty"),
        Signature("NotImplementedError", r"^Strided slices not implemented"),
        Signature("NotImplementedError", r"^Non-trivial indexing on WGMMAAbstractAccumulatorRef is not supported"),
        Signature("ValueError", r"^Out of bound slice: start="),
        Signature("ValueError", r"^Unsupported index: OpResult\(.*arith\.divf"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: whole numbers by `//`. Raises NoFix."""
        names = Names(source)
        divisions: dict[ast.BinOp, None] = {}
        for part in standing_at(names, failure.span, ast.Subscript) if "divf" in failure.message else ():
            for node in _behind(names, part.slice):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                    divisions[node] = None
        if not divisions:
            raise NoFix("by hand: index with numbers and slices without steps, within the Ref; a pl.loop for the rest")
        edits = []
        for division in divisions:
            start, end = source.bounds(division.left)[1], source.bounds(division.right)[0]
            at = source.text.find("/", start, end)
            edits.append(Edit(at, at + 1, "//"))
        yield Candidate("Divide to whole numbers", tuple(edits), needs_oracle=True)


RULES = (IndexOfRef(),)


def _behind(names: Names, node: ast.AST, depth: int = 3) -> Iterator[ast.AST]:
    """What an index is made of, also behind names."""
    for part in ast.walk(node):
        yield part
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and depth:
            bound = names.binding(part.id, part)
            if isinstance(bound, ast.BinOp):
                yield from _behind(names, bound, depth - 1)
