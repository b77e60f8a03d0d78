"""Names where a text came from, and says which of several origins is trusted least.

An origin is written with each revision of a document, an entry or a note. It falls with what a
text was made from, and only a person raises it.
"""

from __future__ import annotations

from typing import Literal, get_args

Origin = Literal["user", "agent", "tool", "web", "import"]

PERSON: Origin = "user"
AGENT: Origin = "agent"
TOOL: Origin = "tool"
WEB: Origin = "web"
IMPORT: Origin = "import"
ORIGINS: tuple[Origin, ...] = get_args(Origin)  # the most trusted one first
FOREIGN: tuple[Origin, ...] = (WEB, IMPORT)  # texts that somebody may have planted
_RANKS = {origin: rank for rank, origin in enumerate(ORIGINS)}


def least(*origins: Origin) -> Origin:
    """Returns the origin that is trusted least."""
    return max(origins, key=_RANKS.__getitem__)


def least_of(*origins: Origin | None) -> Origin | None:
    """Returns the origin that is trusted least of those that are known; None for none."""
    all_known = [origin for origin in origins if origin is not None]
    return least(*all_known) if all_known else None


def trust_of(origin: Origin) -> int:
    """Returns a number that is greater for an origin that is trusted more."""
    return -_RANKS[origin]


def at_least(origin: Origin) -> tuple[Origin, ...]:
    """Returns the origins that are trusted as much as this one, or more."""
    return ORIGINS[: _RANKS[origin] + 1]


def next_origin(
    writer: Origin, *, stated: Origin | None, before: Origin | None, is_same_text: bool = False
) -> Origin:
    """Returns the origin of a new revision.

    `writer`: what the writer's own words are. `stated`: what the writer says of this text.
    `before`: the origin of the revision that is replaced. A person decides; anybody else can only
    lower an origin. The same text keeps its origin.
    """
    if is_same_text and before is not None:
        return before if stated is None else _chosen(writer, stated, before)
    if writer == PERSON:
        return stated or PERSON
    return least_of(writer, stated, before) or writer


def _chosen(writer: Origin, stated: Origin, before: Origin) -> Origin:
    return stated if writer == PERSON else least(stated, before)


def origin_of_source(source: str) -> Origin | None:
    """Returns the origin of an entry whose source is an address of the web; None for any other."""
    return WEB if source.startswith(("http://", "https://")) else None


def origin_in_export(doc_type: str, url: str | None, created_by: str) -> Origin:
    """Returns the origin of an exported document or note whose line states none."""
    if url is not None:
        return WEB
    return PERSON if created_by == PERSON and doc_type != "note" else AGENT
