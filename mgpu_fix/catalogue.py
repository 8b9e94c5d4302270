"""The rules: their base, how a failure finds its rule, and where rules come from.

A rule is one module-level object. Every module behind an entry point of the group ``mgpu_fix.codemods`` is imported,
and each :class:`Rule` in its ``RULES`` is taken. Ours come first, so that a third party cannot take a failure from us.
"""

import abc
import functools
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from mgpu_fix.model import Candidate, Failure, Span, Upgrade
from mgpu_fix.source import Names, SourceFile
from mgpu_fix.versions import Window

GROUP = "mgpu_fix.codemods"


class CatalogueError(Exception):
    """No rule was found, or one does not load; the message says which and what to do."""


@dataclass(frozen=True)
class Signature:
    """What a rule's failures look like.

    ``message`` is searched (a regular expression) in the message of one link of the cause chain whose type is ``type``.
    ``stages`` empty means any. ``callee`` narrows to failures whose facts name that callee. Of two signatures that
    match, the one with the longer pattern is the more specific.
    """

    type: str
    message: str
    stages: tuple[str, ...] = ()
    callee: str = ""

    def matches(self, failure: Failure) -> bool:
        """Whether any link of the failure's cause chain fits."""
        if self.stages and failure.stage not in self.stages:
            return False
        if self.callee and failure.facts.callee != self.callee:
            return False
        links = failure.chain or ((failure.type, failure.message),)
        return any(kind == self.type and re.search(self.message, text, re.S) for kind, text in links)


class Rule(abc.ABC):
    """One idea: a kind of failure and the edits that repair it.

    Subclasses set the attributes and override :meth:`candidates`; the class docstring is the rule's explain page,
    in Markdown with the headings *What it means*, *Why it happens*, *Example*, *Use instead* and *Fix safety*.
    """

    code: str
    name: str
    jax: str
    signatures: Sequence[Signature] = ()
    #: names of its candidates, where it has several ways to choose from
    choices: Sequence[str] = ()
    #: False for a rule that only recognises and explains
    repairs: bool = True

    @abc.abstractmethod
    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """Ways to fix ``failure`` in ``source``, best first. Pure. May raise :class:`NoFix` with a reason."""

    def upgrades(self, names: Names, window: Window) -> Iterable[Upgrade]:
        """What JAX at the end of ``window`` spells differently in a file, seen in its source alone. Pure."""
        return ()

    def evident(self, names: Names) -> Iterable[tuple[Span, str]]:
        """Places at which the source alone shows that the failure is certain, and what it is. Pure."""
        return ()

    @property
    def page(self) -> str:
        """The explain page, Markdown."""
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def summary(self) -> str:
        """First line of the page."""
        return self.page.split("\n", 1)[0]

    @property
    def meaning(self) -> str:
        """What the page says under *What it means*."""
        return self.page.partition("## What it means\n")[2].partition("\n## ")[0].strip()


class NoFix(Exception):
    """Raised by a rule that recognises a failure and cannot mend it; the message is the reason shown."""


@dataclass(frozen=True)
class Catalogue:
    """Every rule, in order of precedence."""

    rules: tuple[Rule, ...]

    def match(self, failure: Failure) -> Rule | None:
        """The rule with the most specific signature that fits, the earlier one where two tie."""
        hits = [(len(s.message), -i) for i, r in enumerate(self.rules) for s in r.signatures if s.matches(failure)]
        return self.rules[-max(hits)[1]] if hits else None

    def ties(self, failure: Failure) -> list[Rule]:
        """Rules that fit equally well; more than one is a fault of the catalogue (its tests ask)."""
        hits = [(len(s.message), r) for r in self.rules for s in r.signatures if s.matches(failure)]
        best = max((n for n, _ in hits), default=0)
        return list(dict.fromkeys(r for n, r in hits if n == best))

    def find(self, query: str) -> Rule | None:
        """The rule with that code or name."""
        return next((r for r in self.rules if query.lower() in (r.code.lower(), r.name)), None)

    def named(self, text: str) -> list[Rule]:
        """The rules of those codes or names, with commas between. Raises CatalogueError where there is none."""
        found = [(name, self.find(name)) for part in text.split(",") if (name := part.strip())]
        for name, rule in found:
            if rule is None:
                raise CatalogueError(f"no rule is called {name}; mgpu-fix rules lists them")
        return [rule for _, rule in found if rule]

    def unknown(self, source: SourceFile) -> list[tuple[Span, str]]:
        """Comments that ignore a rule that there is none of, with what they call it."""
        return [(place, name) for place, name in source.ignored if self.find(name) is None]

    def chosen(self, select: str, ignore: str) -> list[Rule]:
        """The rules selected, all where ``select`` is empty, without those to be ignored. Raises CatalogueError."""
        ignored = self.named(ignore)
        return [rule for rule in self.named(select) or self.rules if rule not in ignored]

    def recognise(self, text: str) -> list[Rule]:
        """Rules whose signatures occur in a pasted message or traceback, most specific first."""
        hits = [(len(s.message), r) for r in self.rules for s in r.signatures if _occurs(s, text)]
        return list(dict.fromkeys(r for _, r in sorted(hits, key=lambda h: -h[0])))

    def explaining(self, query: str) -> list[Rule]:
        """The rule of that code or name, else those that know the pasted error, most specific first."""
        named = self.find(query.strip())
        return [named] if named else self.recognise(query)


def _occurs(signature: Signature, text: str) -> bool:
    return re.search(signature.message.removeprefix("^"), text, re.S) is not None and (
        signature.type in text or len(signature.message) > 20
    )


@functools.cache
def load() -> Catalogue:
    """The installed catalogue. Raises CatalogueError."""
    return Catalogue(tuple(_discover()))


def _discover() -> Iterator[Rule]:
    points = sorted(metadata.entry_points(group=GROUP), key=lambda p: (not p.value.startswith("mgpu_fix."), p.name))
    seen: dict[str, str] = {}
    for point in points:
        try:
            rules = point.load().RULES
        except Exception as e:
            raise CatalogueError(f"rule module {point.value} does not load: {type(e).__name__}: {e}") from e
        for rule in rules:
            if rule.code in seen:
                raise CatalogueError(f"{point.value} and {seen[rule.code]} both define {rule.code}")
            seen[rule.code] = point.value
            yield rule
    if not seen:
        raise CatalogueError("no rules are installed; reinstall with: pip install -e .")
