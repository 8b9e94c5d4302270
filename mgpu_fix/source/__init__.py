"""Bytes in, bytes out: a user's file, edits of it, and the unified diff between two states."""

from mgpu_fix.source.file import Overlap, SourceError, SourceFile, apply_edits, merge_edits
from mgpu_fix.source.names import Names
from mgpu_fix.source.splice import Splice
from mgpu_fix.source.udiff import unified_diff

__all__ = ["Names", "Overlap", "SourceError", "SourceFile", "Splice", "apply_edits", "merge_edits", "unified_diff"]
