"""A report on its way out: text, patch or JSON, to standard output or standard error."""

import os
import sys
from dataclasses import replace

from mgpu_fix.console import Output, is_terminal, say
from mgpu_fix.model import FileReport, Report
from mgpu_fix.report.text import TextReport


class Teller:
    """Tells of files one by one, or of all at once; ``applied`` says that they were written."""

    def __init__(self, output: Output, applied: bool) -> None:
        self.output = output
        self.stream = sys.stderr if output.patch else sys.stdout
        terminal = is_terminal(self.stream) and "NO_COLOR" not in os.environ
        colour = output.colour == "always" or (output.colour == "auto" and terminal)
        self.text = TextReport(colour, applied, output.verbose)

    def file(self, file: FileReport, report: Report) -> None:
        """One file, where files can be told of one by one."""
        if self.output.patch and self.output.format != "json":
            say(file.diff, errors="surrogateescape")
        if self.output.quiet:
            if file.status == "blocked":
                say(f"{file.path}: {file.reason}\n", sys.stderr)
        elif self.output.format != "json":
            say(self.text.render(replace(report, files=(file,)), diffs=not self.output.patch), self.stream)

    def end(self, report: Report) -> None:
        """What is told once, when all files are."""
        if self.output.format == "json":
            from mgpu_fix.report import json

            say(json.render(report))

    def whole(self, report: Report) -> None:
        """Every file."""
        for file in report.files:
            self.file(file, report)
        self.end(report)
