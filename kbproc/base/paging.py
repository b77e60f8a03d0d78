"""Keyset pages: what comes after the last item that a client has seen.

Owns: cursors, opaque to clients, and where a page ends.
Refuses to know: what is listed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kbproc.base.errors import KbprocError


def page(rows: list[Any], limit: int) -> tuple[list[Any], bool]:
    """`rows` was asked for with limit + 1."""
    return rows[:limit], len(rows) > limit


def encode_cursor(last: int | str) -> str:
    """Opaque to clients: the last item's key."""
    import base64

    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode().rstrip("=")


def decode_cursor(cursor: str | None, kind: type) -> Any:
    """Raises input.invalid_params for a cursor that no list has given out."""
    import base64
    import binascii

    if cursor is None:
        return kind()
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        last: Any = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=kind)
        if kind is int and not 0 <= last <= 2**53:
            raise ValueError
        return last
    except (msgspec.DecodeError, ValueError, binascii.Error):
        raise KbprocError(
            "input.invalid_params",
            "cursor is not one that this list has given out.",
            field="$.params.cursor",
            hint="Leave it out to start at the beginning.",
        ) from None
