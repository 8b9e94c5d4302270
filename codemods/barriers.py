"""Barriers that a copy, or who waits for it, is not told of rightly: MGF414 and MGF415."""

import ast
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import block

from .callees import public
from .places import standing_at

_PLGPU = "jax.experimental.pallas.mosaic_gpu."
_COPY, _WAIT = f"{_PLGPU}copy_gmem_to_smem", f"{_PLGPU}barrier_wait"


class CopyWithoutBarrier(Rule):
    """A copy into SMEM has no barrier that says when it is done.

    ## What it means

    On Hopper and newer, `plgpu.copy_gmem_to_smem` returns at once, and arrives at a barrier when the data is there. Who
    reads it waits at that barrier.

    ## Why it happens

    It is forgotten at one of several copies, or the code comes from older GPUs.

    ## Example

    ```python
    plgpu.copy_gmem_to_smem(x_ref, x_smem)
    plgpu.barrier_wait(loaded)
    ```

    ## Use instead

    ```python
    plgpu.copy_gmem_to_smem(x_ref, x_smem, loaded)
    plgpu.barrier_wait(loaded)
    ```

    ## Fix safety

    The barrier that is waited for next, in the same block of code, is given to the copy. It is safe where numbers prove
    it, of a reference or a golden file: another barrier may have been meant.
    """

    code = "MGF414"
    name = "copy-without-barrier"
    jax = "0.10.2 to 0.12.0.1"
    signatures = (
        Signature("ValueError", r"^copy_gmem_to_smem without a barrier is only supported on pre-Hopper"),
        Signature("TypeError", r"^copy_gmem_to_smem\(\) missing 1 required positional argument: 'barrier'"),
    )

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: the next barrier that is waited for. Raises NoFix."""
        names = Names(source)
        for call in standing_at(names, failure.span, ast.Call):
            if public(names.resolve(call.func)) == _COPY and len(call.args) == 2:
                waited = next(_waits_after(names, call), None)
                if waited is None:
                    break
                end = source.bounds(call.args[-1])[1]
                text = source.segment(waited)
                edit = Edit(end, end, f", {text}")
                yield Candidate(f"Let the copy arrive at `{text}`", (edit,), needs_oracle=True)
                return
        raise NoFix("by hand: give the copy a plgpu.Barrier, and wait for it before its data is read")


class BarrierOfSeveral(Rule):
    """One of several barriers is meant, and all of them are given.

    ## What it means

    `plgpu.Barrier(num_barriers=n)` makes n of them. What arrives or waits does so at one, `barriers.at[i]`.

    ## Why it happens

    The index is there where the copy is made, and forgotten where it is waited for.

    ## Example

    ```python
    plgpu.copy_gmem_to_smem(x_ref, x_smem, barriers.at[slot])
    plgpu.barrier_wait(barriers)
    ```

    ## Use instead

    ```python
    plgpu.copy_gmem_to_smem(x_ref, x_smem, barriers.at[slot])
    plgpu.barrier_wait(barriers.at[slot])
    ```

    ## Fix safety

    Each index that the same function gives these barriers elsewhere is tried. It is safe where numbers prove it, of a
    reference or a golden file.
    """

    code = "MGF415"
    name = "barrier-of-several"
    jax = "0.10.2 to 0.12.0.1"
    signatures = (Signature("ValueError", r"^Operation is only valid for a single barrier, but barrier ref contains"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """The indices that the barriers have elsewhere. Raises NoFix."""
        names = Names(source)
        proposed = False
        for call in standing_at(names, failure.span, ast.Call):
            for given in [a for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Name)]:
                end = source.bounds(given)[1]
                for index in dict.fromkeys(_indices(names, given)):
                    proposed = True
                    edit = Edit(end, end, f".at[{index}]")
                    yield Candidate(f"Take `{given.id}.at[{index}]`", (edit,), needs_oracle=True)
        if not proposed:
            raise NoFix("by hand: say which of the barriers, with `.at[i]`")


RULES = (CopyWithoutBarrier(), BarrierOfSeveral())


def _waits_after(names: Names, call: ast.Call) -> Iterator[ast.expr]:
    """The barriers that are waited for behind a copy, in its block and those around it, nearest first; those before
    anything else is done with what it fills."""
    statement: ast.AST = names.statement(call)
    function = names.scope(call)
    filled = {
        n.id for n in ast.walk(call.args[1]) if isinstance(n, ast.Name) and not isinstance(names.parents[n], ast.Slice)
    }
    while isinstance(statement, ast.stmt) and statement is not function:
        siblings = block(names, statement)
        for later in siblings[siblings.index(statement) + 1 :]:
            for node in ast.walk(later):
                if isinstance(node, ast.Call) and node.args and public(names.resolve(node.func)) == _WAIT:
                    yield node.args[0]
            copies = [n for n in ast.walk(later) if isinstance(n, ast.Call) and public(names.resolve(n.func)) == _COPY]
            own = {id(n) for copy in copies for n in ast.walk(copy)}
            if any(isinstance(n, ast.Name) and n.id in filled and id(n) not in own for n in ast.walk(later)):
                return
        statement = names.parents[statement]


def _indices(names: Names, given: ast.Name) -> Iterator[str]:
    """What the barriers are indexed with elsewhere, as text."""
    home = names.home(given.id, given)
    for use in names.uses(given.id, home) if home is not None else ():
        match names.parents[use]:
            case ast.Attribute(attr="at") as place:
                part = names.parents[place]
                if isinstance(part, ast.Subscript):
                    index = part.slice
                    if isinstance(index, ast.Name) and names.scope(index) is not names.scope(given):
                        # Its name means nothing here, and what it stands for may.
                        bound = names.binding(index.id, index)
                        index = bound if isinstance(bound, ast.expr) and not isinstance(bound, ast.Name) else index
                    yield names.source.segment(index)
