"""How Pallas' interface changed from one JAX to the next: ``table.toml`` as data, and the base of rules about it."""

import abc
import ast
import contextlib
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TypeVar

from mgpu_fix.catalogue import NoFix, Rule
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Edit, Failure, Upgrade
from mgpu_fix.source import Names, Overlap, SourceError, SourceFile, merge_edits
from mgpu_fix.versions import NEWEST, Window, parse

from ..callees import public, short

Use = TypeVar("Use", bound=ast.AST)


@dataclass(frozen=True)
class Change:
    """One line of the table.

    ``symbol`` is a public dotted name, ``argument`` one of its arguments where only that changed. ``kind`` says who
    answers: name, keyword, positional (``index`` is its place), removed, or, each with a rule of its own, callback,
    warps, count and pallas_call; aged (wrong only in code that is older than ``added``), silent (it means something
    else; only where the file speaks of ``where`` and not of ``unless``), behaviour (nobody: a run shows it). ``new``
    is the new name where one stands for the old one without more, ``instead`` says in a phrase what to write. JAX
    takes the new spelling from ``added`` on, warns of the old one from ``deprecated`` on and no longer takes it from
    ``removed`` on. ``source`` is where this was seen: a commit of JAX, or its releases.
    """

    symbol: str
    kind: str
    source: str
    argument: str = ""
    index: int | None = None
    new: str = ""
    instead: str = ""
    where: str = ""
    unless: str = ""
    added: str = ""
    deprecated: str = ""
    removed: str = ""

    @property
    def is_pallas(self) -> bool:
        """Whether it is a function or a class of ``pl`` or ``plgpu`` itself."""
        return short(self.symbol).startswith(("pl.", "plgpu.")) and short(self.symbol).count(".") == 1

    @property
    def word(self) -> str:
        """What an error message calls it."""
        return self.argument or self.symbol.rpartition(".")[2]

    @property
    def shown(self) -> str:
        """As reports name it: ``plgpu.kernel(out_shape=)``."""
        return f"{short(self.symbol)}({self.argument}=)" if self.argument else short(self.symbol)

    @property
    def title(self) -> str:
        """What a fix does."""
        if self.kind == "callback":
            return f"Give bodies of {self.shown} {self.instead}"
        if self.new:
            return f"Rename {self.shown} to {self.new if self.argument else short(self.new)}"
        return f"Replace {self.shown} by {self.instead.split(';')[0]}"

    @property
    def gone(self) -> str:
        """The first release that warned of the old spelling, or no longer took it."""
        return self.deprecated or self.removed

    def concerns(self, window: Window) -> bool:
        """Whether the old spelling fails, or is warned of, where the window ends, and the new one works there."""
        if self.kind == "silent":
            return window.accepts(self.added)
        if self.kind == "aged":
            return bool(window.since) and window.crosses(self.added)
        ends = [release for release in (self.deprecated, self.removed) if release]
        gone = any(parse(release) <= window.to for release in ends)
        return gone and (not self.added or window.accepts(self.added))

    def fails(self, window: Window) -> bool:
        """Whether JAX at the end of the window no longer takes the old spelling."""
        return bool(self.removed) and parse(self.removed) <= window.to


@functools.cache
def table() -> tuple[Change, ...]:
    """Every change known."""
    text = resources.files(__package__ or "").joinpath("table.toml").read_text(encoding="utf-8")
    found = [Change(**entry) for entry in tomllib.loads(text)["change"]]
    names = {change.symbol: change.new for change in found if change.kind == "name"}
    # What changed of a name before it was renamed is still to be changed after it.
    later = [replace(c, symbol=names[c.symbol]) for c in found if c.symbol in names and c.kind != "name"]
    return tuple(dict.fromkeys((*found, *later)))


class DriftRule(Rule):
    """A rule about API drift: what it repairs stands in the source, so that no run is needed to find it."""

    #: which lines of the table it answers
    kinds: Sequence[str]

    @abc.abstractmethod
    def found(self, names: Names, window: Window, known: Sequence[Change]) -> Iterator[Upgrade]:
        """What a file spells as in ``known``, each symbol with all its places."""

    def upgrades(self, names: Names, window: Window) -> Iterator[Upgrade]:
        """What the file spells in an old way, as far as it surely is code for Mosaic GPU."""
        meant = _is_for_mosaic_gpu(names)
        known = [change for change in self._known(window) if meant or change.symbol.startswith(_MOSAIC_GPU)]
        return self.found(names, window, known)

    def _known(self, window: Window) -> list[Change]:
        return [change for change in table() if change.kind in self.kinds and change.concerns(window)]

    def candidates(self, failure: Failure, source: SourceFile) -> Iterable[Candidate]:
        """One candidate: every place of what the failure names, and of all that would fail next."""
        window = Window(to=parse(failure.jax) if failure.jax else NEWEST)
        found = list(self.found(Names(source), window, self._known(window)))
        named = [u for u in found if any(word in failure.message for word in u.words)]
        # What JAX only warns of may fail all the same, under an error that does not name it.
        due = [u for u in found if u.due or u in named] or found
        for upgrade in named or due:
            if upgrade.candidate is None:
                raise NoFix(upgrade.reason)
        fixes = _together(u.candidate for u in (*named, *due) if u.candidate is not None)
        if not fixes:
            raise NoFix(self.nothing)
        first, *others = dict.fromkeys(c.title for c in fixes)
        title = ", ".join([first, *(other[0].lower() + other[1:] for other in others)])
        worst = next(a for a in Applicability if any(c.applicability is a for c in fixes))
        edits = tuple(dict.fromkeys(edit for c in fixes for edit in c.edits))
        return [Candidate(title, edits, worst, needs_oracle=any(c.needs_oracle for c in fixes))]

    #: why there is no candidate, where nothing was found
    nothing: str = "nothing in this file that newer JAX spells differently was found"


def _together(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those whose edits do not touch; the others are found again once these are made."""
    chosen: list[Candidate] = []
    for candidate in candidates:
        with contextlib.suppress(Overlap):
            if candidate not in chosen:
                merge_edits([*(c.edits for c in chosen), candidate.edits])
                chosen.append(candidate)
    return chosen


_PALLAS = "jax.experimental.pallas."
_MOSAIC_GPU = ("jax.experimental.pallas.mosaic_gpu", "jax.experimental.mosaic.gpu")
_OTHERS = tuple(f"{_PALLAS}{backend}" for backend in ("triton", "tpu", "tpu_sc", "fuser"))


def _is_for_mosaic_gpu(names: Names) -> bool:
    """Whether what all backends call alike is that of Mosaic GPU here: the file imports this backend and no other."""
    imported = [names.imported(alias) for alias in names.nodes(ast.alias)]
    return any(i.startswith(_MOSAIC_GPU) for i in imported) and not any(i.startswith(_OTHERS) for i in imported)


def upgrade(
    names: Names,
    change: Change,
    window: Window,
    uses: Iterable[Use],
    rewritten: Callable[[Sequence[Use]], Iterable[Edit]],
    applicability: Applicability = Applicability.SAFE,
) -> Iterator[Upgrade]:
    """What becomes of a symbol's uses: all of them are rewritten, or, where one cannot be, none; nothing without any.

    ``rewritten`` gives the edits. It raises NoFix, or SourceError, with a reason. Uses under a condition that asks for
    the version are left alone.
    """
    open_ = [use for use in uses if not guarded(names, use)]
    if not open_:
        return
    candidate, reason = None, ""
    try:
        edits = tuple(dict.fromkeys(rewritten(open_)))
        if not edits:
            return
        candidate = Candidate(change.title, edits, applicability)
    except (NoFix, SourceError) as e:
        reason = str(e)
    places = tuple(names.source.span(use) for use in open_)
    yield Upgrade(change.shown, places, candidate, change.fails(window), (change.word,), change.gone, reason)


def uses_of(names: Names, change: Change) -> Iterator[ast.expr | ast.alias]:
    """The calls of a function, other uses of it, and imports of what can no longer be imported."""
    word = change.word
    found: list[ast.Attribute | ast.Name] = [*names.attributes(word)]
    for alias in names.nodes(ast.alias):
        if alias.name == word and public(names.imported(alias)) == change.symbol:
            if change.removed:
                yield alias
            found += names.uses(alias.asname or word, names.scope(alias))
    # Of a star import.
    found += [name for name in names.loads(word) if names.home(word, name) is None]
    for use in found:
        if public(names.resolve(use)) == change.symbol:
            parent = names.parents[use]
            yield parent if isinstance(parent, ast.Call) and parent.func is use else use


def by_hand(names: Names, change: Change, window: Window, uses: Iterable[Use]) -> Iterator[Upgrade]:
    """What no rule rewrites, with what to write instead."""
    places = tuple(names.source.span(use) for use in uses if not guarded(names, use))
    if places:
        reason = f"to be changed by hand: {change.instead or 'it is gone'}"
        yield Upgrade(change.shown, places, None, change.fails(window), (change.word,), change.gone, reason)


#: Errors that a program expects where it asks what this version of JAX has.
_ASKING = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError", "TypeError"})
_VERSION = re.compile(r"\b(hasattr|getattr|version|signature)\b|__version|version_info")


def guarded(names: Names, node: ast.AST) -> bool:
    """Whether ``node`` runs only under a condition that asks what this version of JAX has."""
    for outer in names.ancestors(node):
        match outer:
            case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers):
                caught = {n.id for h in handlers if h.type for n in ast.walk(h.type) if isinstance(n, ast.Name)}
                if not _ASKING.isdisjoint(caught):
                    return True
            case ast.If(test=test) | ast.IfExp(test=test):
                bound = [names.binding(n.id, n) for n in ast.walk(test) if isinstance(n, ast.Name)]
                asked = [test, *(value for value in bound if isinstance(value, ast.expr))]
                if any(_VERSION.search(names.source.segment(value)) for value in asked):
                    return True
    return False
