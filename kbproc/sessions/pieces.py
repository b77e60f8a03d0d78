"""An answer's pieces: from the log's events, and to the events of a stream.

Owns: which event of the log is which piece, and what a reader is sent of each.
Refuses to know: where pieces are kept, and who reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from kbproc.events.event import Event
from kbproc.events.session import OfMessage
from kbproc.sessions.cursor import Place, cursor_of
from kbproc.views.catalog.rows import PieceRow

_decode = msgspec.json.decode
_REPLACED = "A part of the answer was erased for good."
_RESTARTED = "The answer was cut off and begins anew: what came before is void."


class Sent(NamedTuple):
    """One event of a stream."""

    type: str
    fields: dict[str, Any]


def pieces_of(seq: int, events: Iterable[Event]) -> list[PieceRow]:
    """Of one record, as the catalog folds them in."""
    return [
        PieceRow(seq, index, *event.piece, event.repeats)
        for index, event in enumerate(events)
        if isinstance(event, OfMessage) and event.piece is not None
    ]


def sent(message: int, piece: PieceRow) -> Sent:
    """A piece as an event, with its cursor."""
    cursor = cursor_of(message, Place(piece.seq, piece.idx))
    told: dict[str, Any] = {"cursor": cursor, "message_id": message}
    match piece.kind:
        case "delta":
            return Sent("answer", {**told, "delta": piece.said})
        case "references":
            return Sent("references", {**told, "references": _decode(str(piece.said))})
        case "ended":
            return Sent("answer", {**told, "status": piece.said})
        case "replaced":
            return Sent("warning", {**told, "kind": "replaced", "message": _REPLACED})
        case "restarted":
            return Sent("warning", {**told, "kind": "restarted", "message": _RESTARTED})
    return Sent("warning", {**told, "kind": piece.kind, "message": piece.said})


def snapshot(message: int, pieces: Sequence[PieceRow]) -> Sent:
    """All of them as one event."""
    begun = max((at for at, one in enumerate(pieces) if one.kind == "restarted"), default=-1)
    attempt = pieces[begun + 1 :]
    referred = [one.said for one in attempt if one.kind == "references"]
    ended = [one.said for one in attempt if one.kind == "ended"]
    told: dict[str, Any] = {
        "cursor": cursor_of(message, Place(pieces[-1].seq, pieces[-1].idx)),
        "message_id": message,
        "text": "".join(str(one.said) for one in attempt if one.kind == "delta"),
        "references": _decode(str(referred[-1])) if referred else [],
    }
    return Sent("answer", told | ({"status": ended[-1]} if ended else {}))
