"""Lists models on the hub that people choose, with what their cards say of them.

A card says how to use its model; the files of some models lack what it says, so that their prefixes
are written here.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kbproc.base.values import decoder
from kbproc.engine.models.hub.pins import ModelKind, Prefixes


class Card(Struct, frozen=True, kw_only=True):
    """The facts on a model's card.

    `megabytes`: of the download. `query`, `document`: the prefixes. `matryoshka`: shorter lengths
    that its vectors may be cut to. `measured_as`: the known model with its weights in four bits.
    """

    kind: ModelKind
    languages: str
    dim: int | None
    max_tokens: int
    megabytes: int
    licence: str
    pooling: str
    query: str
    document: str
    matryoshka: list[int]
    measured_as: str | None = None


_FILE = Path(__file__).with_name("curated.json")
_decode = decoder(dict[str, Card]).decode


def cards() -> dict[str, Card]:
    """Returns repository → card."""
    return _decode(_FILE.read_bytes())


def prefixes_of(repository: str) -> Prefixes | None:
    """Returns the prefixes of a model's card; None for a model that is not listed."""
    card = cards().get(repository)
    if card is None or card.kind != "embedder":
        return None
    return Prefixes(query=card.query, document=card.document)
