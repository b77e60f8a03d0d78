"""Fits what a model or a person reads into a budget of tokens or bytes."""

from __future__ import annotations

from collections.abc import Iterable

# English has about four bytes a token, code, JSON and numbers three, Chinese three a character.
BYTES_PER_TOKEN = 3


def byte_size(text: str) -> int:
    """Returns how many bytes the text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def beginning(text: str, room: int) -> str:
    """Returns the characters at the beginning of `text` that fit `room` bytes of UTF-8."""
    return text.encode("utf-8", "replace")[: max(0, room)].decode("utf-8", "ignore")


def number_that_fits(sizes: Iterable[int], room: int) -> int:
    """Returns how many of the items, which have these sizes in their order, fit the room."""
    number = 0
    for length in sizes:
        room -= length
        if room < 0:
            break
        number += 1
    return number
