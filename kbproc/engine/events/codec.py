"""Encodes events as bytes for the log, and decodes them.

It lists all events, under tags that never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

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
from kbproc.engine.events.entry import EntryReplaces, EntryReviewed, EntryRevived, EntrySuperseded
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
    | EntryReplaces
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

_encoder = msgspec.json.Encoder()
_decoder = decoder(list[AnyEvent])


def encode(events: Iterable[Event]) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(list(events)))


def decode(raw: bytes | msgspec.Raw) -> Sequence[Event]:
    """Returns the events of a record's bytes.

    Raises store.incompatible for events that this version does not know.
    """
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise KbprocError(
            "store.incompatible",
            f"The log holds an event that this kbproc can't read: {error}.",
            hint="A later kbproc, or one from before the first release, wrote it: use that one.",
        ) from error


_PURGES = (ContentForgotten, DocPurged, SessionPurged)
_MARKS = [f'"{kind.tag()}"'.encode() for kind in _PURGES]


def purges(raw: bytes | msgspec.Raw) -> bool:
    """Returns True if a record's events erase texts of earlier records."""
    data = bytes(raw)
    return any(mark in data for mark in _MARKS) and any(
        isinstance(event, _PURGES) for event in decode(raw)
    )
