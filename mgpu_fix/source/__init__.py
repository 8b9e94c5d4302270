"""Bytes in, bytes out: a user's file, edits of it, and the unified diff between two states."""

from typing import TYPE_CHECKING, Any

from mgpu_fix.source.document import Document
from mgpu_fix.source.file import Overlap, SourceError, SourceFile, apply_edits, merge_edits
from mgpu_fix.source.names import Names, find_function
from mgpu_fix.source.udiff import edits_between, line_before, offset_before, unified_diff

if TYPE_CHECKING:
    from mgpu_fix.source.splice import Splice

__all__ = [
    "Document",
    "Names",
    "Overlap",
    "SourceError",
    "SourceFile",
    "Splice",
    "apply_edits",
    "edits_between",
    "find_function",
    "line_before",
    "merge_edits",
    "offset_before",
    "unified_diff",
]


def __getattr__(name: str) -> Any:
    # LibCST takes 0.2 s to import, and runs of the user's program have no use for it.
    if name == "Splice":
        from mgpu_fix.source.splice import Splice

        return Splice
    raise AttributeError(name)
