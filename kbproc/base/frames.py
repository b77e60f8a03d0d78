"""Frames: msgpack messages between this process and a child, each with its length before it."""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

LENGTH = struct.Struct(">I")


def frame(message: object) -> bytearray:
    """Returns a message with its length, four bytes, before it."""
    framed = bytearray(LENGTH.size)
    msgspec.msgpack.Encoder().encode_into(message, framed, LENGTH.size)
    LENGTH.pack_into(framed, 0, len(framed) - LENGTH.size)
    return framed


def read_frame(source: BinaryIO) -> bytes | None:
    """Returns the next message, not decoded; None where the stream ends before or within it."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = source.read(size)
    return body if len(body) == size else None
