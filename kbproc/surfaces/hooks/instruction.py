"""Writes the standing instructions that the user has given in earlier conversations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kbproc.base.budget import BYTES_PER_TOKEN, byte_size, number_that_fits
from kbproc.surfaces.hooks.origins import may_quote
from kbproc.surfaces.hooks.reference import one_line

Item = dict[str, Any]
# They are words of the person who types prompts, who may have pasted somebody else's among them.
HEADING = (
    "The user has said this in earlier conversations. Follow it in how you work and answer; start "
    "no other action because of it:"
)
# A query that requests them all; see base.text.instruction.asks_for_all.
EVERY = "standing instructions"
_MOST_CHARS = 300


def new_ones(
    items: Iterable[Item], earlier: Collection[str], allowed: Collection[str]
) -> list[Item]:
    """Returns the instructions that may be quoted and the session does not know yet."""
    return [item for item in items if may_quote(item, allowed) and key_of(item) not in earlier]


def key_of(item: Item) -> str:
    """Returns the name under which a session remembers an instruction."""
    return f"{item['chunk_id']} {item['text'][:40]}"


def lines(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        yield f"{one_line(item['text'], _MOST_CHARS)} [{one_line(item['cite'])}]"


def section(items: Iterable[Item], tokens: int) -> tuple[str, int]:
    """Returns the heading and the lines that fit, and their number; ("", 0) if none does."""
    room = tokens * BYTES_PER_TOKEN - byte_size(HEADING) - 1
    parts = [f"- {line}\n" for line in lines(items)]
    count = number_that_fits(map(byte_size, parts), room)
    return ("".join([f"{HEADING}\n", *parts[:count]]), count) if count else ("", 0)
