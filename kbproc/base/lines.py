"""Cuts the bytes of a stream into lines, wherever the blocks begin and end.

`client/process.py` has a reader of its own, because the client imports no other package.
"""

from __future__ import annotations


class LineCutter:
    """Takes blocks in their order, and returns the lines that they complete."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the parts of a line whose newline has not come
        self.unfinished_bytes = 0  # the length of these parts

    def take(self, block: bytes) -> list[bytes]:
        """Returns the lines that the block completes, without their newlines."""
        if b"\n" not in block:  # part of a long line, which is joined once
            self._parts.append(block)
            self.unfinished_bytes += len(block)
            return []
        *lines, rest = b"".join([*self._parts, block]).split(b"\n")
        self._parts = [rest]
        self.unfinished_bytes = len(rest)
        return lines

    def unfinished(self) -> bytes:
        """Returns the beginning of the line that has not come whole, and forgets it."""
        beginning = b"".join(self._parts)
        self._parts, self.unfinished_bytes = [], 0
        return beginning
