"""A report on its way out, to standard output, standard error or a file: text, a patch, or a format for machines."""

import importlib
import os
import sys
from dataclasses import replace

from mgpu_fix.console import Output, OutputError, is_terminal, say
from mgpu_fix.model import FileReport, Report
from mgpu_fix.report.text import TextReport


class Teller:
    """Tells of files one by one, or of all at once; ``applied`` says that they were written."""

    def __init__(self, output: Output, applied: bool) -> None:
        self.output, self.applied = output, applied
        self.stream = sys.stderr if output.patch else sys.stdout
        terminal = is_terminal(self.stream) and "NO_COLOR" not in os.environ and not output.file
        colour = output.colour == "always" or (output.colour == "auto" and terminal)
        self.text = TextReport(colour, applied, output.verbose)
        self._kept = ""

    def file(self, file: FileReport, report: Report) -> None:
        """One file, where files can be told of one by one."""
        # Either the patch or a report for machines has standard output for itself.
        if self.output.patch and (self.output.text or self.output.file):
            say(file.diff, errors="surrogateescape")
        if self.output.quiet and self.output.text:
            if file.status == "blocked":
                say(f"{file.path}: {file.reason}\n", sys.stderr)
        elif self.output.text:
            self.say(self.text.render(replace(report, files=(file,)), diffs=not self.output.patch))

    def say(self, text: str) -> None:
        """A part of the text report."""
        if self.output.file:
            self._kept += text
        else:
            say(text, self.stream)

    def end(self, report: Report) -> None:
        """What is told once, when all files are. Raises OutputError."""
        if not self.output.text:
            # Only the format that is asked for is loaded.
            form = importlib.import_module(f"mgpu_fix.report.{self.output.format}")
            self._kept = form.render(report, self.applied)
            if not self.output.file:
                say(self._kept)
        if self.output.file:
            try:
                with open(self.output.file, "wb") as f:
                    f.write(self._kept.encode("utf-8", "replace"))
            except OSError as e:
                raise OutputError(f"the report cannot be written to {self.output.file}: {e.strerror}") from e

    def whole(self, report: Report) -> None:
        """Every file."""
        for file in report.files:
            self.file(file, report)
        self.end(report)
