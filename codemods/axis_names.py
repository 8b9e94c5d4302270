"""MGF507: a kernel asks for an axis that its mesh does not have."""

import ast
import difflib
import re
from collections.abc import Iterable

from mgpu_fix.catalogue import NoFix, Rule, Signature
from mgpu_fix.model import Candidate, Edit, Failure
from mgpu_fix.source import Names, SourceFile

from .meshes import asked_axes, declared_axes, quoted

_ASKING = ("jax.lax.axis_index", "jax.lax.axis_size")


class UnboundAxisName(Rule):
    """A kernel asks for an axis by a name that its mesh does not have.

    ## What it means

    `lax.axis_index(name)` finds a block's, a cluster's or a warpgroup's place along an axis that `grid_names`,
    `cluster_names` or `thread_name` of the kernel name.

    ## Why it happens

    The name is misspelt, or was changed in one place only. Helpers that several kernels share ask for the name that one
    of them uses.

    ## Example

    ```python
    plgpu.kernel(body, out_type=out, grid=(4,), grid_names=("rows",))
    i = lax.axis_index("row")
    ```

    ## Use instead

    ```python
    i = lax.axis_index("rows")
    ```

    ## Fix safety

    The name that is closest, or the only one that nothing in the file asks for, may be that of another axis. So it is
    safe where numbers prove it, of a reference or a golden file, and else `unsafe`.
    """

    code = "MGF507"
    name = "unbound-axis-name"
    jax = "0.10.2 to 0.12.0.1"
    signatures = (Signature("NameError", r"^Found an unbound axis name: "),)

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: the closest name that is declared. Raises NoFix."""
        names = Names(source)
        found = re.search(r"unbound axis name: ([^\s.]+)", failure.message)
        wrong = found[1] if found else ""
        known = declared_axes(names) - {wrong}
        close = difflib.get_close_matches(wrong, sorted(known), 1)
        free = sorted(known - {*asked_axes(names)})
        new = close[0] if close else free[0] if len(free) == 1 else None
        calls = [c for c in names.nodes(ast.Call) if names.resolve(c.func) in _ASKING and c.args]
        places = [n for c in calls for n in ast.walk(c.args[0]) if isinstance(n, ast.Constant) and n.value == wrong]
        if new is None or not places:
            raise NoFix(
                f"by hand: the mesh has no axis {wrong}; it is named by {', '.join(sorted(known)) or 'nothing'}"
            )
        edits = (Edit(*source.bounds(place), quoted(names, new)) for place in places)
        yield Candidate(f"Ask for {new}", tuple(edits), needs_oracle=True)


RULES = (UnboundAxisName(),)
