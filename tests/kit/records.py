"""Drafts to append to a log, appending them, the lines of a segment, and what records name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kbproc.events import codec
from kbproc.events.document import DocWritten
from kbproc.log.interface import Log
from kbproc.log.record import Draft, Record
from kbproc.store.store import Store


def draft(number: int, size: int = 10) -> Draft:
    """Every second one carries a token; `size` is that of its event's text."""
    return Draft(
        ts=f"2026-01-01T00:00:00.{number:03d}Z",
        actor="ann",
        method="doc.create",
        salt=f"{number:032x}",
        events=msgspec.Raw(b'[{"n":"' + b"x" * size + b'"}]'),
        token=f"token-{number}" if number % 2 else None,
        params_hash="ab" if number % 2 else None,
        result=msgspec.Raw(b'{"data":%d}' % number),
    )


def commit(log: Log, drafts: Sequence[Draft]) -> list[Record]:
    """One batch."""
    with log.batch() as batch:
        written = batch.append(drafts)
        batch.commit()
    return written


def write(log: Log, count: int, *, size: int = 10) -> list[Record]:
    """A batch a record."""
    return [record for _ in range(count) for record in commit(log, [draft(log.head.seq + 1, size)])]


def split(segment: Path) -> list[bytes]:
    """Its lines, with their newlines."""
    return segment.read_bytes().splitlines(keepends=True)


def put(lines: list[bytes], segment: Path) -> None:
    segment.write_bytes(b"".join(lines))


def unnamed(store: Store) -> set[str]:
    """The sources that lie in the store's folder and no record names."""
    events = (event for record in store.log.read() for event in codec.decode(record.events))
    named = {event.source_sha256 for event in events if isinstance(event, DocWritten)}
    return {path.name for path in store.blobs.paths()} - named
