"""How sure a fix is, and how well it is proven: two independent scales, both shown with every fix."""

import enum
from collections.abc import Iterable


class Applicability(enum.StrEnum):
    """How sure a fix is to keep what the program means; see :meth:`allows`."""

    DISPLAY = "display"
    UNSAFE = "unsafe"
    SAFE = "safe"

    def allows(self, other: "Applicability") -> bool:
        """Whether a run that asks for at least ``self`` may write a fix marked ``other``."""
        order = list(Applicability)
        return order.index(other) >= order.index(self)


class VerifiedBy(enum.StrEnum):
    """What proved a kernel, strongest first."""

    GOLDEN = "golden"
    GPU = "gpu"
    INTERPRETER = "interpreter"
    COMPILED = "compiled"
    LOWERED = "lowered"

    def satisfies(self, least: "VerifiedBy") -> bool:
        """Whether this proof is at least as strong as ``least``."""
        order = list(VerifiedBy)
        return order.index(self) <= order.index(least)


def weakest(levels: Iterable[VerifiedBy]) -> VerifiedBy:
    """The weakest of some proofs, lowering where there are none."""
    order = list(VerifiedBy)
    return max(levels, key=order.index, default=VerifiedBy.LOWERED)
