"""MGF601: an asynchronous copy out of SMEM with nothing to commit the stores before it."""

import ast
from collections.abc import Iterable, Iterator

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure, Span, Uncommitted
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.source.flow import block

from .imports import Imports

_MODULE = "jax.experimental.pallas.mosaic_gpu"


class MissingCommit(Rule):
    """SMEM is copied to GMEM right after it was stored to, without `plgpu.commit_smem()` between.

    ## What it means

    `plgpu.copy_smem_to_gmem` hands the work to the TMA unit, which does not see ordinary stores until they are
    committed. JAX lowers the kernel without a word, and the interpreter copies the new values; a GPU may copy what was
    there before.

    ## Why it happens

    The copy looks like any other statement, so that the stores before it seem to be done. `emit_pipeline` commits by
    itself; only copies that a kernel makes on its own need it.

    ## Example

    ```python
    smem[...] = x_ref[...] * 2
    plgpu.copy_smem_to_gmem(smem, o_ref)
    plgpu.wait_smem_to_gmem(0)
    ```

    ## Use instead

    ```python
    smem[...] = x_ref[...] * 2
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(smem, o_ref)
    plgpu.wait_smem_to_gmem(0)
    ```

    ## Fix safety

    Safe: a commit orders memory and computes nothing. It goes where the store and the copy part ways: out of a
    warp-level region that only copies, so that every thread that stored commits.
    """

    code = "MGF601"
    name = "missing-commit"
    jax = "0.10.2 to 0.12.0"
    signatures = (Signature("MissingCommit", r"^copy_smem_to_gmem copies what was stored at line"),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Commits before every copy that lacks one; beside the store if it can be. Raises NoFix."""
        names = Names(source)
        pairs = failure.facts.uncommitted
        shared = [_shared(source, names, pair) for pair in pairs]
        direct = [_statement(source, names, pair.copy) for pair in pairs]
        for before in dict.fromkeys((tuple(shared), tuple(direct))):
            imports = Imports(names)
            edits = dict.fromkeys(_commit(source, names, imports, statement) for statement in before)
            yield Candidate(
                title="Commit what was stored before it is copied", edits=(*imports.edits, *edits), orders=True
            )


def _statement(source: SourceFile, names: Names, span: Span) -> ast.stmt:
    if span.path != source.path:
        raise NoFix(f"the copy stands in {span.path}")
    for call in names.nodes(ast.Call):
        if source.span(call) == span:
            return names.statement(call)
    raise NoFix(f"the copy at line {span.line} is not found")


def _shared(source: SourceFile, names: Names, pair: Uncommitted) -> ast.stmt:
    """The statement that holds the copy, of the innermost block that also holds the store."""
    copy = _statement(source, names, pair.copy)
    if pair.store.path != source.path:
        return copy
    stored = [n for n in names.nodes(ast.Subscript) if source.span(n) == pair.store]
    around = set(_statements(names, stored[0])) if stored else set()
    for statement in _statements(names, copy):
        siblings = getattr(names.parents[statement], "body", ())
        if statement in siblings and not around.isdisjoint(siblings):
            return statement
        parent = names.parents[statement]
        if isinstance(parent, ast.FunctionDef) and not parent.decorator_list:
            # It is called from somewhere; only a decorator may run it where it stands.
            return copy
    return copy


def _statements(names: Names, node: ast.AST) -> Iterator[ast.stmt]:
    """The statements around a node, innermost first."""
    return (n for n in (node, *names.ancestors(node)) if isinstance(n, ast.stmt))


def _commit(source: SourceFile, names: Names, imports: Imports, statement: ast.stmt) -> Edit:
    """The call on a line of its own, after the statement before ``statement``. Raises NoFix where there is no line."""
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    siblings = block(names, statement)
    at = siblings.index(statement)
    before = siblings[at - 1].end_lineno if at else None
    indent = source.indentation(first)
    if before == first or len(indent) != statement.col_offset:
        raise NoFix(f"the copy at line {first} shares its line with another statement")
    start = source.starts[before if before is not None else first - 1]
    return Edit(start, start, f"{indent}{imports.name(_MODULE)}.commit_smem(){source.newline}")


RULES = (MissingCommit(),)
