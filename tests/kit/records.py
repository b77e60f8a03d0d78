"""Builds and appends record drafts; reads segments' lines and unnamed sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kbproc.engine.events import codec
from kbproc.engine.events.document import ChunkText, DocDeleted, DocWritten
from kbproc.engine.events.event import Event
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import Record, RecordDraft
from kbproc.engine.store.store import Store


def draft(number: int, size: int = 10) -> RecordDraft:
    """Returns a draft; every second one has a token. `size`: of its event's text."""
    return RecordDraft(
        ts=f"2026-01-01T00:00:00.{number:03d}Z",
        actor="ann",
        method="doc.create",
        salt=f"{number:032x}",
        events=msgspec.Raw(b'[{"n":"' + b"x" * size + b'"}]'),
        token=f"token-{number}" if number % 2 else None,
        params_hash="ab" if number % 2 else None,
        result=msgspec.Raw(b'{"data":%d}' % number),
    )


def commit(log: Log, drafts: Sequence[RecordDraft]) -> list[Record]:
    """Appends the drafts as one batch."""
    with log.batch() as batch:
        written = batch.append(drafts)
        batch.commit()
    return written


def write(log: Log, count: int, *, size: int = 10) -> list[Record]:
    """Appends `count` records, each as its own batch."""
    return [record for _ in range(count) for record in commit(log, [draft(log.head.seq + 1, size)])]


def split(segment: Path) -> list[bytes]:
    """Returns the segment's lines with their newlines."""
    return segment.read_bytes().splitlines(keepends=True)


def put(lines: list[bytes], segment: Path) -> None:
    segment.write_bytes(b"".join(lines))


def unnamed(store: Store) -> set[str]:
    """Returns the sources in the store's folder that no record names."""
    events = (event for record in store.log.read() for event in codec.decode(record.events))
    named = {event.source_sha256 for event in events if isinstance(event, DocWritten)}
    return set(store.blobs.names()) - named


def repeated(store: Store) -> list[tuple[int, str | None]]:
    """Returns id and path of each revision in the log that changes nothing."""
    states: dict[int, tuple[str, str | None]] = {}
    repetitions = []
    for record in store.log.read(0, store.seq):
        for event in codec.decode(record.events):
            if isinstance(event, DocDeleted):
                states.pop(event.id, None)
            if isinstance(event, DocWritten):
                state = (event.source_sha256, event.path)
                if states.get(event.id) == state:
                    repetitions.append((event.id, event.path))
                states[event.id] = state
    return repetitions


def draft_of(number: int, *events: Event) -> RecordDraft:
    """Returns a draft with these events; two of three have a token."""
    return RecordDraft(
        ts=f"2026-01-01T00:00:00.{number:03d}Z",
        actor="ann",
        method="test",
        salt=f"{number:032x}",
        events=msgspec.Raw(bytes(codec.encode(events))),
        token=f"{number % 5}" if number % 3 else None,
        params_hash=None,
        result=msgspec.Raw(b'{"data":%d}' % number),
    )


def written(id: int, **members: Any) -> DocWritten:
    """Returns the event of a new document with one chunk."""
    defaults: dict[str, Any] = {
        "kb": "default",
        "revision": 1,
        "title": f"Page {id}",
        "doc_type": "text",
        "source_sha256": "ab",
        "size_bytes": 3,
        "first_chunk": id,
        "chunks": [ChunkText(text=f"words of page {id}")],
        "parser": 1,
        "origin": "user",
    }
    return DocWritten(id=id, **{**defaults, **members})
