"""Turns the log's events into pieces of an answer, and pieces into the events of a stream.

A cursor is a reader's place among the pieces. It is opaque to clients; it holds the message, the
record of the log and the event in it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import OfMessage
from kbproc.engine.projections.catalog.rows import PieceRow

_decode = msgspec.json.decode
_REPLACED = "A part of the answer was erased for good."
_RESTARTED = "The answer was interrupted and starts again: discard the text so far."
_NUMBERS = re.compile(rb"(\d{1,16})\.(\d{1,16})\.(\d{1,16})")


class CursorPlace(NamedTuple):
    """A piece's place: its record, and the event in that."""

    seq: int
    idx: int


BEFORE_ALL = CursorPlace(0, 0)


class StreamEvent(NamedTuple):
    """One event of a stream."""

    type: str
    fields: dict[str, Any]


def pieces_of(seq: int, events: Iterable[Event]) -> list[PieceRow]:
    """Returns the pieces of one record, as the catalog folds them."""
    return [
        PieceRow(seq, index, *event.piece, event.repeats)
        for index, event in enumerate(events)
        if isinstance(event, OfMessage) and event.piece is not None
    ]


def event_of(message: int, piece: PieceRow) -> StreamEvent:
    """Returns a piece as an event of the stream, with its cursor."""
    cursor = cursor_of(message, CursorPlace(piece.seq, piece.idx))
    members: dict[str, Any] = {"cursor": cursor, "message_id": message}
    match piece.kind:
        case "delta":
            return StreamEvent("answer", {**members, "delta": piece.said})
        case "references":
            return StreamEvent("references", {**members, "references": _decode(str(piece.said))})
        case "ended":
            return StreamEvent("answer", {**members, "status": piece.said})
        case "replaced":
            return StreamEvent("warning", {**members, "kind": "replaced", "message": _REPLACED})
        case "restarted":
            return StreamEvent("warning", {**members, "kind": "restarted", "message": _RESTARTED})
    return StreamEvent("warning", {**members, "kind": piece.kind, "message": piece.said})


def snapshot(message: int, pieces: Sequence[PieceRow]) -> StreamEvent:
    """Returns all pieces as one event of the stream."""
    restart = max((at for at, one in enumerate(pieces) if one.kind == "restarted"), default=-1)
    attempt = pieces[restart + 1 :]
    references = [one.said for one in attempt if one.kind == "references"]
    statuses = [one.said for one in attempt if one.kind == "ended"]
    members: dict[str, Any] = {
        "cursor": cursor_of(message, CursorPlace(pieces[-1].seq, pieces[-1].idx)),
        "message_id": message,
        "text": "".join(str(one.said) for one in attempt if one.kind == "delta"),
        "references": _decode(str(references[-1])) if references else [],
    }
    return StreamEvent("answer", members | ({"status": statuses[-1]} if statuses else {}))


# ------------------------------------------------------------------------- cursors


def cursor_of(message: int, place: CursorPlace) -> str:
    text = f"{message}.{place.seq}.{place.idx}".encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def place_of(cursor: str, message: int, *, head: int) -> CursorPlace:
    """Returns the cursor's place. `head`: the log's position.

    Raises input.invalid_params for an invalid cursor, resource.conflict for another message's.
    """
    try:
        text = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError, UnicodeEncodeError):
        text = b""
    match = _NUMBERS.fullmatch(text)
    if match is None:
        raise KbprocError(
            "input.invalid_params",
            "after is not a cursor of an answer.",
            field="$.params.after",
            hint="Give the cursor of the last event that you have, or leave it out to begin anew.",
        )
    cursor_message, seq, idx = map(int, match.groups())
    if cursor_message != message:
        raise conflict(
            f"after is a cursor of message {cursor_message}, not of message {message}.", head
        )
    return CursorPlace(seq, idx)


def conflict(message: str, head: int) -> KbprocError:
    return KbprocError(
        "resource.conflict",
        message,
        field="$.params.after",
        hint="Leave after out to read the answer from its beginning, or pass snapshot.",
        seq=head,
        detail={"head": head},
    )
