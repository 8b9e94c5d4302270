"""API drift: one file's text brought to another version of JAX. Pure; nothing is run, so nothing is proven."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
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
) -> Upgraded:
    """``source`` with all that ``rules`` know of the window; fixes less sure than ``least`` are only told.

    ``wanted`` are names that other files import from it, and that it keeps. Runs until nothing changes, so that a
    second call finds nothing to do.
    """
    original, names, fixes, symbols = source, Names(source, wanted), list[Fix](), Counter[str]()
    ages: list[str] = []
    since = window.since
    for _ in range(_ROUNDS):
        start = source
        for rule in rules:
            found = list(rule.upgrades(names, window))
            ages += [u.gone for u in found if u.gone]
            chosen = _together(u for u in found if u.candidate and least.allows(u.candidate.applicability))
            if not chosen:
                continue
            try:
                changed = source.edited(edit for _, candidate in chosen for edit in candidate.edits)
            except SourceError:
                continue
            fixes += [_fix(rule, u, candidate, source, original) for u, candidate in chosen]
            symbols.update({u.symbol: len(u.places) for u, _ in chosen})
            source, names = changed, Names(changed, wanted)
        # What was right when the code was written, as far as its age shows.
        aged = replace(window, since=before(ages)) if ages and not since else window
        if source.data == start.data and aged == window:
            break
        window = aged
    left = [(rule, u) for rule in rules for u in rule.upgrades(names, window)]
    remaining = tuple(_remaining(rule, u, source, original) for rule, u in left if u.due)
    notes = tuple(_remaining(rule, u, source, original) for rule, u in left if not u.due)
    return Upgraded(source, tuple(fixes), remaining, notes, symbols)


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


def _remaining(rule: Rule, upgrade_: Upgrade, source: SourceFile, original: SourceFile) -> Remaining:
    line, column = _place(upgrade_, source, original)
    reason = upgrade_.reason
    if upgrade_.candidate is not None:
        what = "a suggestion only" if upgrade_.candidate.applicability is Applicability.DISPLAY else "not sure"
        reason = f"{what}: {upgrade_.candidate.title}"
        reason += "" if what == "a suggestion only" else "; --unsafe-fixes does it"
    return Remaining(rule.code, "parse", "Drift", upgrade_.symbol, source.path, line, column, reason)


def _place(upgrade_: Upgrade, source: SourceFile, original: SourceFile) -> tuple[int | None, int | None]:
    """Where its first place lies in the file on disk."""
    first = min(upgrade_.places, default=None)
    line = line_before(original, source, first.line, changed=True) if first else None
    return line, first.column if first and line is not None else None
