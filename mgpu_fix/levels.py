"""How sure a fix is, how well it is proven, and what by: independent scales, shown with every fix."""

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


class Oracle(enum.StrEnum):
    """What a kernel's numbers are held against, the first that there is: those of a golden file, those of a reference
    function, those of what the original means."""

    GOLDEN = "golden"
    REFERENCE = "reference"
    ORIGINAL = "original"

    @property
    def proof(self) -> VerifiedBy:
        """How well agreement with it proves a kernel whose numbers the interpreter gives."""
        return VerifiedBy.GOLDEN if self is Oracle.GOLDEN else VerifiedBy.INTERPRETER


def weakest(levels: Iterable[VerifiedBy]) -> VerifiedBy:
    """The weakest of some proofs, lowering where there are none."""
    order = list(VerifiedBy)
    return max(levels, key=order.index, default=VerifiedBy.LOWERED)
