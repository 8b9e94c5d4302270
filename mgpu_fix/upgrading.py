"""The ``upgrade`` command, once its options are parsed. It loads no more than it needs: most trees hold no kernels."""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgpu_fix.console import Output, Progress, UsageError, check_output, is_terminal, say
from mgpu_fix.levels import Applicability
from mgpu_fix.versions import Version, Window, installed, parse
from mgpu_fix.walk import pallas_files

if TYPE_CHECKING:
    from mgpu_fix.model import FileReport, Report
    from mgpu_fix.observe import Program


@dataclass(frozen=True)
class Chosen:
    """Options as they were given; versions are those of JAX."""

    since: str = ""
    to: str = ""
    select: str = ""
    ignore: str = ""
    unsafe: bool = False
    jobs: int = 0
    interactive: bool = False


def upgrade(
    paths: tuple[str, ...], chosen: Chosen, output: Output, write: bool, program: "Program | None" = None
) -> int:
    """Bring files to a newer JAX; returns the exit code.

    ``program``, where given, is run with what came out, and repaired further. Raises UsageError, CatalogueError.
    """
    since = _version("--from", chosen.since) or ()
    to = _version("--to", chosen.to)
    if since and since > (to or installed()):
        newest = chosen.to or "the JAX installed"
        raise UsageError(f"--from {chosen.since} is newer than {newest}; code only goes forward")
    if chosen.select or chosen.ignore:
        from mgpu_fix.catalogue import load

        load().chosen(chosen.select, chosen.ignore)
    # Nothing runs the Python of Markdown.
    files = tuple(path for path in pallas_files(paths) if not (program and path.endswith(".md")))
    check_output(output, files)
    if not files and output.text:
        say("" if output.quiet else "no file speaks of Pallas\n", sys.stderr if output.patch else sys.stdout)
        return 0
    return _upgraded(files, paths, Window(since, to or installed()), chosen, output, write, program)


def _upgraded(
    files: tuple[str, ...],
    paths: tuple[str, ...],
    window: Window,
    chosen: Chosen,
    output: Output,
    write: bool,
    program: "Program | None",
) -> int:
    from mgpu_fix import trees
    from mgpu_fix.model import Report
    from mgpu_fix.report.tell import Teller

    least = Applicability.UNSAFE if chosen.unsafe else Applicability.SAFE
    jobs = chosen.jobs or os.cpu_count() or 1
    task = trees.Task(files, paths, window, chosen.select, chosen.ignore, least, write and not program, jobs)
    teller = Teller(output, write)
    partial = Report(())
    accept = None
    if chosen.interactive:
        from mgpu_fix.asking import terminal

        accept = terminal(teller.text, sys.stderr)

    def tell(file: "FileReport") -> None:
        if file.status != "clean" or file.notes or output.verbose:
            teller.file(file, partial)

    with Progress(not output.quiet and is_terminal(sys.stderr) and not accept) as progress:
        progress.say("upgrading")
        results = trees.carry_out(task, (lambda file: None) if program else tell, accept)
        report = trees.report(results)
        if program:
            from mgpu_fix.proving import prove

            asked = accept or (lambda fix: True)
            report = prove(results, program, chosen.select, chosen.ignore, chosen.unsafe, write, progress.say, asked)
    symbols = sum((result.symbols for result in results), Counter[str]())
    for file in report.files if program else ():
        teller.file(file, report)
    if not output.quiet and output.text:
        teller.say(_summary(report, symbols, write, proven=program is not None))
    teller.end(report)
    return _exit_code(report, write)


def _summary(report: "Report", symbols: Counter[str], write: bool, proven: bool) -> str:
    """A table of what was changed, and, where nothing was run, what to do about that."""
    changed = sum(bool(file.diff) and file.status != "blocked" for file in report.files)
    done = "changed" if write else "would change"
    files = f"of {len(report.files)} file{'s' if len(report.files) > 1 else ''} with Pallas in them {changed} {done}"
    if not symbols or not changed:
        return f"{files}\n"
    width = max(map(len, symbols))
    rows = "".join(f"  {symbol:{width}}  {count:5}\n" for symbol, count in sorted(symbols.items()))
    unproven = "" if proven else "Unverified, since nothing was run: --run or --call proves it.\n"
    return f"{files}; places by symbol:\n{rows}{unproven}"


def _exit_code(report: "Report", write: bool) -> int:
    statuses = {file.status for file in report.files}
    if "blocked" in statuses:
        return 2
    if statuses & {"partial", "unfixed"}:
        return 1
    return 1 if not write and "fixed" in statuses else 0


def _version(option: str, text: str) -> Version | None:
    try:
        return parse(text) if text else None
    except ValueError as e:
        raise UsageError(f"{option}: {e}; give one like 0.10.2") from None
