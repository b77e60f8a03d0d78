"""Encodes events as bytes for the log, and decodes them.

It lists all events, under tags that never change, and holds the single-step upcasts that turn older
shapes into today's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.document import (
    ChunkDeleted,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.entry import EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.plan import PlanApproved
from kbproc.engine.events.session import OfSession, SessionPurged
from kbproc.engine.events.upkeep import (
    ContentForgotten,
    DocPurged,
    Erased,
    LogRepaired,
    ModelUsed,
    PurgeEnded,
)
from kbproc.engine.events.watch import FolderUnwatched, FolderWatched

AnyEvent = (
    KbCreated
    | KbUpdated
    | KbDeleted
    | DocWritten
    | DocChanged
    | DocDeleted
    | ChunkDeleted
    | FileFailed
    | FileCleared
    | DocPurged
    | ContentForgotten
    | PurgeEnded
    | Erased
    | EntrySuperseded
    | EntryRevived
    | EntryReviewed
    | AgentWritten
    | AgentDeleted
    | ModelUsed
    | LogRepaired
    | PlanApproved
    | FolderWatched
    | FolderUnwatched
    | OfSession
)

# Every event's class under its tag.
KINDS: dict[str, type[Event]] = {kind.tag(): kind for kind in get_args(AnyEvent)}

# Old tag → function that turns its members into the next shape's, tag included.
UPCASTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_encoder = msgspec.json.Encoder()
_decoder = decoder(list[AnyEvent])


def encode(events: Iterable[Event]) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(list(events)))


def decode(raw: bytes | msgspec.Raw) -> Sequence[Event]:
    """Returns today's events from a record's bytes, however old.

    Raises store.incompatible for events that only a later version knows.
    """
    try:
        if not UPCASTS:
            return _decoder.decode(raw)
        return _decoder.decode(_encoder.encode([upcast(item) for item in msgspec.json.decode(raw)]))
    except msgspec.ValidationError as error:
        raise KbprocError(
            "store.incompatible",
            f"The log holds an event that this kbproc can't read: {error}.",
            hint="A later kbproc has written it: install that one.",
        ) from error


def upcast(item: dict[str, Any]) -> dict[str, Any]:
    """Returns the item in its newest shape, reached in single steps."""
    while step := UPCASTS.get(item["type"]):
        item = step(item)
    return item


_PURGES = (ContentForgotten, DocPurged, SessionPurged)
_MARKS = [f'"{kind.tag()}"'.encode() for kind in _PURGES]


def purges(raw: bytes | msgspec.Raw) -> bool:
    """Returns True if a record's events erase texts of earlier records."""
    data = bytes(raw)
    return any(mark in data for mark in _MARKS) and any(
        isinstance(event, _PURGES) for event in decode(raw)
    )
