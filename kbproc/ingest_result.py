"""What an ingest tells of itself.

Owns: the counts, the listed files, and the error of an ingest that worked in part.
Refuses to know: how files are found and read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kbproc.errors import KbprocError
from kbproc.words import plural


class FileFailure(Struct, frozen=True, kw_only=True):
    path: str
    type: str
    message: str


class Changed(Struct, frozen=True, kw_only=True):
    id: int
    path: str
    action: Literal["added", "updated"]


class IngestResult(Struct, kw_only=True):
    """Counts of files; `documents` and `failures` list the first hundred."""

    kb: str
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    unsupported: int = 0
    chunks: int = 0
    documents: list[Changed] = []
    failures: list[FileFailure] = []


def counts(result: IngestResult) -> dict[str, Any]:
    names = ("added", "updated", "unchanged", "removed", "failed", "unsupported", "chunks")
    return {name: getattr(result, name) for name in names}


def partial(result: IngestResult) -> KbprocError:
    """The outcome of an ingest in which some files could not be read."""
    total = result.added + result.updated + result.unchanged + result.failed
    detail = {**counts(result), "kb": result.kb, "failures": msgspec.to_builtins(result.failures)}
    first = result.failures[0]
    name = Path(first.path).name
    where = "" if name in first.message else f"{name}: "  # most messages name the file
    return KbprocError(
        "operation.partial",
        f"{result.failed} of {plural(total, 'file')} could not be read. First: "
        f"{where}{first.message}",
        detail=detail,
    )
