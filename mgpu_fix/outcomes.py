"""What the run of a program, and the search for fixes of it, says of each file that was named."""

import os
from collections.abc import Sequence
from dataclasses import replace

from mgpu_fix import disk
from mgpu_fix.account import Outcome
from mgpu_fix.model import FileReport, Fix, Observation, Remaining, Report
from mgpu_fix.source import Document


def exit_code(report: Report, mode: str) -> int:
    """The contract's exit code: 2 blocked, 1 something remains (or a preview found a change), 0 otherwise."""
    statuses = {f.status for f in report.files}
    if "blocked" in statuses:
        return 2
    if statuses & {"partial", "unfixed"} or any(f.stopped for f in report.files):
        return 1
    return 1 if mode != "apply" and any(f.diff for f in report.files) else 0


def reports_of(name: str, outcome: Outcome, files: Sequence[str]) -> dict[str, FileReport]:
    """What one program's run says of each file named. What lies in no named file is told of the program's own."""
    named = {os.path.realpath(f): f for f in files}
    fixes: dict[str, list[Fix]] = {}
    remaining: dict[str, list[Remaining]] = {}
    for fix in outcome.fixes:
        fixes.setdefault(named.get(fix.path, name), []).append(replace(fix, path=disk.shown_path(named[fix.path])))
    for item in outcome.remaining:
        expected = item.reason.startswith("caught by the program")
        if not expected:
            remaining.setdefault(named.get(item.path, name), []).append(
                replace(item, path=disk.shown_path(item.path) if item.path else "")
            )
    notes: dict[str, list[Remaining]] = {}
    for item in outcome.notes:
        notes.setdefault(named.get(item.path, name), []).append(
            replace(item, path=disk.shown_path(item.path) if item.path else "")
        )
    reports = {}
    for file in named.values():
        status = _status(bool(fixes.get(file)), bool(remaining.get(file)))
        reports[file] = FileReport(
            path=disk.shown_path(file),
            status=status,
            fixes=tuple(fixes.get(file, ())),
            remaining=tuple(remaining.get(file, ())),
            notes=tuple(notes.get(file, ())),
        )
    caught = sum(r.reason.startswith("caught by the program") for r in outcome.remaining)
    kernels = tuple(replace(k, path=disk.shown_path(k.path) if k.path else "") for k in outcome.kernels)
    own = replace(reports[name], kernels=kernels, output=outcome.last.output, exit_code=outcome.last.exit_code)
    reports[name] = _judged(own, outcome, caught)
    return reports


def _status(fixed: bool, remains: bool) -> str:
    if fixed:
        return "partial" if remains else "fixed"
    return "unfixed" if remains else "clean"


def shows_nothing(outcome: Outcome) -> bool:
    """Whether a program ran to its end and nothing of Pallas was seen in it."""
    last = outcome.last
    seen = last.calls or last.others or outcome.fixes or outcome.remaining or outcome.notes
    return last.status == "ok" and not seen


def _judged(report: FileReport, outcome: Outcome, caught: int) -> FileReport:
    """The program's own file: blocked where the run shows nothing, with what to do about it."""
    judged = _judged_alone(report, outcome, caught)
    if not outcome.last.children:
        return judged
    # Seen or not, nothing is known of what the others did.
    status = "blocked" if shows_nothing(outcome) else judged.status
    reason = f"{judged.reason}; {_CHILDREN}" if judged.reason else _CHILDREN
    return replace(judged, status=status, reason=reason)


_CHILDREN = "it starts processes of its own, in which no kernel is seen"


def _judged_alone(report: FileReport, outcome: Outcome, caught: int) -> FileReport:
    last = outcome.last
    if last.status in ("timeout", "crashed", "blocked"):
        return replace(report, status="blocked", reason=last.reason)
    if last.status == "stopped" and last.reason:
        return _stopped(report, outcome)
    if caught:
        plural = "error is" if caught == 1 else "errors are"
        return replace(report, reason=f"{caught} {plural} caught by the program; --include-caught fixes them")
    if shows_nothing(outcome):
        if not last.declared:
            return replace(report, reason="it calls no Pallas kernel")
        return replace(report, status="blocked", reason=_how_to_call(last))
    return replace(report, reason=_idle(last, report.path))


def _stopped(report: FileReport, outcome: Outcome) -> FileReport:
    """A program that stops by itself, or whose tests fail."""
    last = outcome.last
    found = bool(report.fixes or report.remaining or outcome.fixes or outcome.remaining)
    if last.checks:
        own = [check for check in last.checks if check.reason]
        unproven = all(check.unproven for check in own)
        # The other tests were run to their end all the same.
        reason, span, seen = last.reason, own[0].span if own else None, found or bool(last.calls)
    else:
        unproven = any(n.state != "known" for c in last.calls for n in c.numbers)
        reason, span, seen = f"the program stops: {last.reason}", last.span, found or unproven
    if span:
        mine = span.path == os.path.realpath(report.path)
        reason += f" (line {span.line})" if mine else f" ({disk.shown_path(span.path)}:{span.line})"
    if unproven:
        reason += ", after a kernel whose numbers could not be had"
    return replace(report, reason=reason, status=report.status if seen else "blocked", stopped=not unproven)


def _idle(last: Observation, path: str) -> str:
    """What to say of the kernels that are declared in a file and not called."""
    called = {(c.span.path, c.span.line) for c in last.calls if c.span}
    idle = [k for k in last.declared if (k.path, k.line) not in called and k.path == os.path.realpath(path)]
    return f"not called, so not checked: {', '.join(f'{k.name} (line {k.line})' for k in idle)}" if idle else ""


def reports_of_one(files: Sequence[str], outcome: Outcome) -> dict[str, FileReport]:
    """What the one run for all files says of each. What lies in none of them is told of the first."""
    last = outcome.last
    reports = reports_of(files[0], outcome, files)
    first = reports[files[0]]
    paths = {name: os.path.realpath(name) for name in files}
    known = {*last.loaded, *(k.path for k in last.declared)}
    unseen = [n for n in files if paths[n] not in known and not reports[n].fixes and not reports[n].remaining]
    if first.status == "blocked" and shows_nothing(outcome) and last.declared:
        first = replace(first, reason=f"no kernel is called; seen: {_seen(last)}. Run something that calls one")
    for name in files:
        report = first if name == files[0] else reports[name]
        mine = (k for k in outcome.kernels if paths[name] == (k.path if k.path in paths.values() else paths[files[0]]))
        kernels = tuple(replace(k, path=disk.shown_path(k.path) if k.path else "") for k in mine)
        status, reason = report.status, report.reason
        if first.status == "blocked":
            status, reason = "blocked", first.reason
        elif name in unseen:
            # One file is a mistake, one of many only lies elsewhere.
            status = "blocked" if unseen == list(files) else status
            reason = "; ".join(filter(None, ("the program does not load it, so nothing in it was checked", reason)))
        elif report is not first:
            reason = _idle(last, name)
        reports[name] = replace(report, kernels=kernels, status=status, reason=reason)
    return reports


def _how_to_call(observation: Observation) -> str:
    seen = _seen(observation)
    if not observation.callables:
        return f"no kernel is called; seen: {seen}. Call one in the file, or in a function that --call NAME names"
    call = f"--call {observation.callables[0]} --arg 'f32[128,128]'"
    return f"no kernel is called; seen: {seen}. Call one with its own shapes, one --arg for each operand, like {call}"


def _seen(observation: Observation) -> str:
    return ", ".join(f"{k.name} (line {k.line})" for k in observation.declared[:5])


def merged(a: FileReport | None, b: FileReport) -> FileReport:
    """Two programs' words on one file."""
    if a is None or a.status == "blocked":
        return b
    fixes, remaining = (*a.fixes, *b.fixes), (*a.remaining, *b.remaining)
    return replace(
        b,
        fixes=fixes,
        remaining=remaining,
        kernels=(*a.kernels, *b.kernels),
        status=_status(bool(fixes), bool(remaining)),
    )


def placed(report: FileReport, document: Document) -> FileReport:
    """What was said of a document's program, said of the document: its lines, and the names of its pieces."""
    if document.file is document.program:
        return report

    def line(number: int | None) -> int | None:
        return number and document.place(number)[0]

    def label(number: int | None) -> str:
        return document.place(number)[1] if number else ""

    def item(left: Remaining) -> Remaining:
        if left.path != report.path:
            return left
        name = label(left.line)
        reason = f"in {name}: {left.reason}" if name else left.reason
        return replace(left, line=line(left.line), column=None, reason=reason)

    def fixed(fix: Fix) -> Fix:
        name = label(fix.line)
        title = f"{fix.title}, in {name}" if name else fix.title
        return replace(fix, line=line(fix.line), column=None, title=title)

    kernels = (
        replace(kernel, line=line(kernel.line)) if kernel.path == report.path else kernel for kernel in report.kernels
    )
    unread = f"{len(document.left_out)} left as they are: {document.left_out[0]}" if document.left_out else ""
    return replace(
        report,
        reason="; ".join(filter(None, (report.reason, unread))),
        fixes=tuple(map(fixed, report.fixes)),
        kernels=tuple(kernels),
        remaining=tuple(map(item, report.remaining)),
        notes=tuple(map(item, report.notes)),
    )
