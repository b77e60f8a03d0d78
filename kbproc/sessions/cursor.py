"""Where in an answer a reader is.

Owns: cursors, opaque to clients: the message, the record of the log and the place in it.
Refuses to know: what lies there.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from kbproc.base.errors import KbprocError

_NUMBERS = re.compile(rb"(\d{1,16})\.(\d{1,16})\.(\d{1,16})")


class Place(NamedTuple):
    """A piece's place: its record, and the event in that."""

    seq: int
    idx: int


BEFORE_ALL = Place(0, 0)


def cursor_of(message: int, place: Place) -> str:
    told = f"{message}.{place.seq}.{place.idx}".encode()
    return base64.urlsafe_b64encode(told).decode().rstrip("=")


def place_of(cursor: str, message: int, *, head: int) -> Place:
    """Raises input.invalid_params for what is no cursor, resource.conflict for another message's.

    `head`: the log's position.
    """
    try:
        told = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError, UnicodeEncodeError):
        told = b""
    found = _NUMBERS.fullmatch(told)
    if found is None:
        raise KbprocError(
            "input.invalid_params",
            "after is no cursor of an answer.",
            field="$.params.after",
            hint="Give the cursor of the last event that you have, or leave it out to begin anew.",
        )
    of, seq, idx = map(int, found.groups())
    if of != message:
        raise conflict(f"after is a cursor of message {of}, not of message {message}.", head)
    return Place(seq, idx)


def conflict(message: str, head: int) -> KbprocError:
    return KbprocError(
        "resource.conflict",
        message,
        field="$.params.after",
        hint="Leave after out to read the answer from its beginning, or pass snapshot.",
        seq=head,
        detail={"head": head},
    )
