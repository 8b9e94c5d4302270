"""Plain data into the protocol's own, with lines from 0 and columns in the code units that were agreed on."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lsprotocol import types

from mgpu_fix.lsp.analysis import Action, Analysis, Problem
from mgpu_fix.model import Edit, Span
from mgpu_fix.source import SourceError, SourceFile

FIX_ALL = "source.fixAll.mgpu-fix"


class Converter:
    """For one analysis: the texts that its places lie in, and how the editor counts and names them."""

    def __init__(self, analysis: Analysis, encoding: str, uri_of: Callable[[str], str]) -> None:
        self.encoding, self.uri_of = encoding, uri_of
        self._sources = dict(analysis.sources)

    def diagnostic(self, problem: Problem, page: str | None) -> types.Diagnostic:
        """``page`` is the address of what explains the problem's rule."""
        spots = ((self._range(spot.span), spot) for spot in problem.related)
        related = [
            types.DiagnosticRelatedInformation(types.Location(self.uri_of(spot.span.path), place), spot.message)
            for place, spot in spots
        ]
        return types.Diagnostic(
            self._range(problem.span),
            problem.message,
            types.DiagnosticSeverity(problem.severity),
            problem.code or None,
            types.CodeDescription(page) if page else None,
            "mgpu-fix",
            [types.DiagnosticTag.Deprecated] if problem.deprecated else None,
            related or None,
        )

    def workspace_edit(self, action: Action, versions: Mapping[str, int], versioned: bool) -> types.WorkspaceEdit:
        """What makes an action's edits, of exactly these versions where the editor can say so."""
        edits = {path: [self._text_edit(path, edit) for edit in made] for path, made in action.changes.items()}
        if not versioned:
            return types.WorkspaceEdit(changes={self.uri_of(path): made for path, made in edits.items()})
        changes = [
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(self.uri_of(path), versions.get(path)), list(made)
            )
            for path, made in edits.items()
        ]
        return types.WorkspaceEdit(document_changes=list(changes))

    def _text_edit(self, path: str, edit: Edit) -> types.TextEdit:
        source = self._sources[path]
        start, end = (self._position(source, *source.position(offset)) for offset in (edit.start, edit.end))
        return types.TextEdit(types.Range(start, end), edit.new)

    def _range(self, span: Span) -> types.Range:
        source = self._source(span.path)
        start = self._position(source, span.line, span.column)
        if not span.end_line:
            return types.Range(start, start)
        return types.Range(start, self._position(source, span.end_line, span.end_column))

    def _source(self, path: str) -> SourceFile | None:
        if path not in self._sources:
            try:
                self._sources[path] = SourceFile(path, Path(path).read_bytes())
            except (OSError, SourceError):
                return None
        return self._sources[path]

    def _position(self, source: SourceFile | None, line: int, column: int) -> types.Position:
        if source is None or not 1 <= line <= len(source.starts):
            return types.Position(max(line - 1, 0), 0)
        return types.Position(line - 1, source.units(line, column, self.encoding))


def touches(a: types.Range, b: types.Range) -> bool:
    """Whether two ranges have a place in common, be it only an end."""
    return (a.start.line, a.start.character) <= (b.end.line, b.end.character) and (
        b.start.line,
        b.start.character,
    ) <= (a.end.line, a.end.character)


def is_wanted(kind: str, only: Iterable[str] | None) -> bool:
    """Whether an editor that asks for ``only`` these kinds of actions wants one of ``kind``."""
    return only is None or any(kind == o or kind.startswith(f"{o}.") for o in only)
