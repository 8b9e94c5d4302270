"""What rules have in common that only recognise and explain."""

from collections.abc import Iterable

from mgpu_fix.catalogue import NoFix, Rule
from mgpu_fix.model import Candidate, Failure
from mgpu_fix.source import SourceFile


class Explained(Rule):
    """A failure that is recognised; ``by_hand`` says in one line what to do about it."""

    by_hand: str
    repairs = False

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Always raises NoFix, with what to do by hand."""
        raise NoFix(f"by hand: {self.by_hand}")

    @property
    def page(self) -> str:
        """The class docstring, and that nothing is changed."""
        return f"{super().page}\n\n## Fix safety\n\nThere is no fix: the failure is named and nothing is changed."
