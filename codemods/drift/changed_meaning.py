"""MGF909: what newer JAX takes as it is written, and means otherwise."""

from collections.abc import Iterable, Iterator, Sequence

from mgpu_fix.catalogue import NoFix
from mgpu_fix.model import Candidate, Failure, Upgrade
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.versions import Window

from .rules import Change, DriftRule, guarded, uses_of

_LINK = "https://github.com/jax-ml/jax/commit/"


class ChangedMeaning(DriftRule):
    """Code that every JAX takes, and that means something else since the one it was written for.

    ## What it means

    Nothing fails, so nothing but a look at the numbers, or at the speed, would tell.

    ## Why it happens

    | what | since |
    |---|---|
    | the outputs of `plgpu.kernel` are not zero before they are stored to | 0.6.1 |
    | over a `plgpu.WarpMesh` `lax.axis_index` is the warp in its warpgroup, and not in the block | 0.10.0 |
    | kernels are lowered with Warpgroup semantics where they do not ask for Lane | 0.11.0 |

    ## Example

    ```python
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _():
        @pl.when(lax.axis_index("warp") == 5)  # the second warp of the second warpgroup, once
        def _(): ...
    ```

    ## Use instead

    ```python
        @pl.when((lax.axis_index("wg") == 1) & (lax.axis_index("warp") == 1))
    ```

    ## Fix safety

    Never rewritten: only you can tell what was meant. `mgpu-fix upgrade` shows the places where `--from`, or another
    old spelling in the file, says that the code is older than the change.
    """

    code = "MGF909"
    name = "changed-meaning"
    jax = "any"
    kinds = ("silent",)
    repairs = False

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """None: nothing fails."""
        raise NoFix("read what changed, and decide")

    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """One for each change that code of the window's start does not know."""
        text = names.source.text
        for change in known:
            spoken_of = change.where in text and not (change.unless and change.unless in text)
            places = [use for use in uses_of(names, change) if not guarded(names, use)] if spoken_of else []
            if places:
                spans = tuple(names.source.span(place) for place in places)
                reason = f"its meaning changed in JAX {change.added}: {change.instead} ({_LINK}{change.source})"
                yield Upgrade(change.shown, spans, None, due=False, reason=reason)

    def _known(self, window: Window) -> list[Change]:
        return [change for change in super()._known(window) if window.since and window.crosses(change.added)]


RULES = (ChangedMeaning(),)
