"""Parses one document in a pool of parsers."""

from __future__ import annotations

from collections.abc import Callable

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.formats import NO_OPTIONS, ReadOptions
from kbproc.engine.sources.parse.pool import ParserPool
from kbproc.engine.sources.parse.progress import Progress
from kbproc.engine.sources.parse.worker import ParsedChunks, ParserJob


def parse_one(
    pool: ParserPool,
    data: bytes,
    type: str,
    name: str,
    title: str | None = None,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    options: ReadOptions = NO_OPTIONS,
) -> ParsedChunks:
    """Returns the document's chunks; raises the error that it gets."""
    reports = on_progress is not None
    job = ParserJob(data=data, type=type, name=name, title=title, reports=reports, options=options)
    (result,) = pool.parse([job], on_progress)
    if isinstance(result, KbprocError):
        raise result
    return result
