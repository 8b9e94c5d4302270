"""API drift: one file's text brought to another version of JAX. Pure; nothing is run, so nothing is proven."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from mgpu_fix.catalogue import Rule
from mgpu_fix.levels import Applicability
from mgpu_fix.model import Candidate, Edit, Fix, Remaining, Upgrade
from mgpu_fix.source import (
    Names,
    Overlap,
    SourceError,
    SourceFile,
    apply_edits,
    line_before,
    merge_edits,
    unified_diff,
)
from mgpu_fix.versions import Window, before

#: Rewrites of rewrites that a file may need; each round makes all that fit together.
_ROUNDS = 20


@dataclass(frozen=True)
class Upgraded:
    """A file's new text, what was done to it, what was not, and how many places of each symbol were changed.

    ``remaining`` is what JAX no longer takes, ``notes`` what it takes and warns of, or takes for something else.
    """

    source: SourceFile
    fixes: tuple[Fix, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    notes: tuple[Remaining, ...] = ()
    symbols: Counter[str] = field(default_factory=Counter)


def upgrade(
    source: SourceFile,
    rules: Sequence[Rule],
    window: Window,
    least: Applicability,
    wanted: Collection[str] = (),
    accept: Callable[[Fix], bool] = lambda fix: True,
) -> Upgraded:
    """``source`` with all that ``rules`` know of the window; fixes less sure than ``least`` are only told.

    ``wanted`` are names that other files import from it, and that it keeps. A fix that ``accept`` says no to is left.
    Runs until nothing changes, so that a second call finds nothing to do.
    """
    declined: set[tuple[str, str]] = set()

    def refusal(rule: Rule, upgrade_: Upgrade) -> str:
        if _ignored(rule, upgrade_, source):
            return "a comment says to ignore it"
        return "declined" if (rule.code, upgrade_.symbol) in declined else _refusal(upgrade_, source, least)

    original, names, fixes, symbols = source, Names(source, wanted), list[Fix](), Counter[str]()
    ages: list[str] = []
    since = window.since
    for _ in range(_ROUNDS):
        start = source
        for rule in rules:
            found = _found(rule, names, window)
            ages += [u.gone for u in found if u.gone]
            chosen = []
            for u, candidate in _together(u for u in found if not refusal(rule, u)):
                if accept(_fix(rule, u, candidate, source, original)):
                    chosen.append((u, candidate))
                else:
                    declined.add((rule.code, u.symbol))
            if not chosen:
                continue
            try:
                changed = source.edited(edit for _, candidate in chosen for edit in candidate.edits)
            except SourceError:
                # Each of them parses alone; the others get their turn after it.
                chosen = chosen[:1]
                changed = source.edited(chosen[0][1].edits)
            fixes += [_fix(rule, u, candidate, source, original) for u, candidate in chosen]
            symbols.update({u.symbol: len(u.places) for u, _ in chosen})
            source, names = changed, Names(changed, wanted)
        # What was right when the code was written, as far as its age shows.
        aged = replace(window, since=before(ages)) if ages and not since else window
        if source.data == start.data and aged == window:
            break
        window = aged
    left = [(rule, u) for rule in rules for u in _found(rule, names, window)]
    told = [
        (u.due and not _ignored(rule, u, source), _remaining(rule, u, source, original, refusal(rule, u)))
        for rule, u in left
    ]
    remaining = tuple(item for due, item in told if due)
    notes = tuple(item for due, item in told if not due)
    return Upgraded(source, tuple(fixes), remaining, notes, symbols)


def seen(source: SourceFile, rules: Iterable[Rule], window: Window) -> list[tuple[Rule, Upgrade, str]]:
    """All that ``rules`` find in ``source`` as it stands, and why it cannot be changed by itself, empty if it can."""
    names = Names(source)
    found = [(rule, upgrade_) for rule in rules for upgrade_ in _found(rule, names, window)]
    return [(rule, u, _refusal(u, source, Applicability.DISPLAY)) for rule, u in found]


def _found(rule: Rule, names: Names, window: Window) -> list[Upgrade]:
    """What a rule finds; a fault of its own costs the user what it would find, and nothing else."""
    try:
        return list(rule.upgrades(names, window))
    except Exception as e:
        reason = f"{rule.code} itself failed, which is a fault of the rule: {type(e).__name__}: {e}"
        return [Upgrade(rule.name, (), None, due=True, reason=reason)]


def _refusal(upgrade_: Upgrade, source: SourceFile, least: Applicability) -> str:
    """Why an upgrade is not made, empty if it is."""
    candidate = upgrade_.candidate
    if candidate is None:
        return upgrade_.reason
    if not least.allows(candidate.applicability):
        if candidate.applicability is Applicability.DISPLAY:
            return f"a suggestion only: {candidate.title}"
        return f"not sure: {candidate.title}; --unsafe-fixes does it"
    try:
        changed = source.edited(candidate.edits)
    except (SourceError, Overlap) as e:
        return f"{candidate.title} fails: {e}"
    if source.comments - changed.comments:
        return f"{candidate.title} would lose a comment"
    if not _compiles(changed) and _compiles(source):
        return f"{candidate.title} fails: Python does not take the result"
    return ""


def _ignored(rule: Rule, upgrade_: Upgrade, source: SourceFile) -> bool:
    """Whether a comment at one of its places says to leave it, and so all of them."""
    return any(source.ignores(place.line, (rule.code, rule.name)) for place in upgrade_.places)


def _compiles(source: SourceFile) -> bool:
    """Whether Python takes more than the grammar of a file: a keyword given twice is none of that."""
    try:
        compile(source.tree, source.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _together(upgrades: Iterable[Upgrade]) -> list[tuple[Upgrade, Candidate]]:
    """Upgrades whose edits do not touch; the others wait for the next round."""
    chosen: list[tuple[Upgrade, Candidate]] = []
    edits: list[Edit] = []
    for upgrade_ in upgrades:
        assert upgrade_.candidate
        try:
            edits = merge_edits([edits, upgrade_.candidate.edits])
        except Overlap:
            continue
        chosen.append((upgrade_, upgrade_.candidate))
    return chosen


def _fix(rule: Rule, upgrade_: Upgrade, candidate: Candidate, source: SourceFile, original: SourceFile) -> Fix:
    line, column = _place(upgrade_, source, original)
    return Fix(
        code=rule.code,
        name=rule.name,
        title=candidate.title,
        applicability=candidate.applicability,
        verified_by=None,
        path=source.path,
        kernel="",
        line=line,
        column=column,
        diff=unified_diff(source.path, source.data, source.encode(apply_edits(source.text, candidate.edits))),
    )


def _remaining(rule: Rule, upgrade_: Upgrade, source: SourceFile, original: SourceFile, reason: str) -> Remaining:
    line, column = _place(upgrade_, source, original)
    reason = reason or "not done, since the changes do not come to an end"
    return Remaining(rule.code, "parse", "Drift", upgrade_.symbol, source.path, line, column, reason)


def _place(upgrade_: Upgrade, source: SourceFile, original: SourceFile) -> tuple[int | None, int | None]:
    """Where its first place lies in the file on disk."""
    first = min(upgrade_.places, default=None)
    line = line_before(original, source, first.line, changed=True) if first else None
    return line, first.column if first and line is not None else None
