"""Lists models on the hub that people choose, with what their cards say of them.

A card says how to use its model; the files of some models lack what it says, so that their prefixes
are written here.

Where the facts come from, as they were looked up in November 2026: cards, config.json, 1_Pooling
and file sizes on huggingface.co, of the models or of copies of them; the entries in MTEB
(`mteb/models`: dimensions, tokens, licence, prefixes, megabytes of arctic-embed-m-v1.5 and mxbai);
the README of Snowflake-Labs/arctic-embed; mixedbread.ai's page. Not found: the size of the graph of
arctic-embed-m-v2.0, for which `model install --dry-run` asks the hub; and other shorter lengths of
mxbai's vectors than the one in its example. What a model's own files say comes first.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kbproc.base.values import decoder
from kbproc.engine.models.hub.pins import ModelKind, Prefixes


class Card(Struct, frozen=True, kw_only=True):
    """The facts on a model's card.

    `megabytes`: of the download; None: unknown before the hub is asked. `query`, `document`: the
    prefixes. `matryoshka`: shorter lengths that its vectors may be cut to. `measured_as`: the known
    model with its weights in four bits.
    """

    kind: ModelKind
    languages: str
    dim: int | None
    max_tokens: int
    megabytes: int | None
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
