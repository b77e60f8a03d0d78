"""The house as its cards tell it: for the generated map, and for the tests that hold the rules.

Owns: reading the package's docstring (the order of rooms) and every room's card.
Refuses to know: whether the code keeps to them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from msgspec import Struct

import kbproc

_PACKAGE = Path(kbproc.__file__).parent
_STOREY = re.compile(r"^([A-Z][a-z ]+): +([a-z ]+)$", re.M)


class Card(Struct, frozen=True, kw_only=True):
    """A room's `__init__.py`: `offers` are modules that other rooms may import."""

    sentence: str
    refuses: str
    offers: tuple[str, ...]
    may_import: tuple[str, ...]
    light: bool


def storeys() -> dict[str, list[str]]:
    """Each storey with its rooms, from the ground up."""
    return {name: rooms.split() for name, rooms in _STOREY.findall(kbproc.__doc__ or "")}


def rooms() -> list[str]:
    """All rooms; each may import only those before it."""
    return [room for rooms in storeys().values() for room in rooms]


def card(room: str) -> Card:
    """Raises KeyError for a card that lacks a line."""
    text = ast.get_docstring(ast.parse((_PACKAGE / room / "__init__.py").read_text())) or ""
    sentence, refuses, facts = (" ".join(part.split()) for part in text.strip().split("\n\n"))
    fact = dict(re.findall(r"(Offers|May import|Light): (.*?)(?= May import:| Light:|$)", facts))
    return Card(
        sentence=sentence,
        refuses=refuses.removeprefix("Refuses to know: "),
        offers=_names(fact["Offers"]),
        may_import=_names(fact["May import"]),
        light=fact["Light"] == "yes",
    )


def _names(said: str) -> tuple[str, ...]:
    return () if said == "nothing" else tuple(said.split(" · "))


def house_map() -> str:
    """Markdown for AGENTS.md: every room with its sentence."""
    lines = ["| storey | room | what |", "| --- | --- | --- |"]
    for storey, names in storeys().items():
        for number, room in enumerate(names):
            lines.append(f"| {'' if number else storey} | `{room}/` | {card(room).sentence} |")
    return "\n".join(lines) + "\n"
