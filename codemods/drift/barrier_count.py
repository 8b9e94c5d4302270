"""MGF910: barriers that are indexed, and no longer made so that they can be."""

import ast
from collections.abc import Iterator, Sequence

from mgpu_fix.catalogue import Signature
from mgpu_fix.model import Edit, Upgrade
from mgpu_fix.source import Names
from mgpu_fix.versions import Window

from ..arguments import keyword, spliced, with_argument
from ..callees import Callees, starred
from .rules import Change, DriftRule, upgrade

_COUNT = "num_barriers"


class BarrierWithoutCount(DriftRule):
    """A barrier is indexed that is made without `num_barriers`.

    ## What it means

    `plgpu.Barrier()` makes one barrier without an axis. `barrier.at[0]` asks for the first of several.

    ## Why it happens

    Until JAX 0.11.1 `num_barriers` was 1 where it was not given, so that the barrier had one axis. From 0.11.2 on it
    has none, and JAX says that `indices` must not be longer than `shape`.

    ## Example

    ```python
    scratch_types=[plgpu.SMEM((128,), jnp.float32), plgpu.Barrier()]
    ...
    plgpu.barrier_wait(barrier.at[0])
    ```

    ## Use instead

    ```python
    scratch_types=[plgpu.SMEM((128,), jnp.float32), plgpu.Barrier(num_barriers=1)]
    ```

    ## Fix safety

    Safe: it is what every JAX before made of it, and one barrier may also be used without an index. All barriers of the
    file that have no count get one. Only `mgpu-fix apply` does so, where a run meets the error.
    """

    code = "MGF910"
    name = "barrier-without-count"
    jax = "0.11.2 and newer"
    kinds = ("count",)
    nothing = "no barrier without num_barriers is made in this file"
    signatures = (Signature("ValueError", r"^`indices` must not be longer than `shape`: indices=.*, shape=\(\)"),)

    def upgrades(self, names: Names, window: Window) -> Iterator[Upgrade]:
        """Nothing: whether a barrier is indexed shows in a run."""
        return iter(())

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for each kind of barrier."""
        for change in known:
            callees = Callees(names, {change.symbol}, {_COUNT})
            made = [call for call in names.nodes(ast.Call) if callees.of(call) and not _has_count(call)]
            yield from upgrade(names, change, window, made, lambda calls: _counted(names, calls))


RULES = (BarrierWithoutCount(),)


def _has_count(call: ast.Call) -> bool:
    return starred(call) or any(k.arg in (_COUNT, None) for k in call.keywords)


def _counted(names: Names, calls: Sequence[ast.Call]) -> Iterator[Edit]:
    yield from spliced(names, {call: lambda old: with_argument(old, keyword(_COUNT, "1")) for call in calls})
