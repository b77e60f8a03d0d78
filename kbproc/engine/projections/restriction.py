"""Defines the restriction of a search that the full-text and the vector index both apply."""

from __future__ import annotations

from msgspec import Struct

from kbproc.engine.projections.catalog.rows import Ids


class Restriction(Struct, frozen=True):
    """The chunks that a search may return; None does not restrict.

    `kbs`: only chunks with one of these labels (see filters); `without`: no chunks with one of
    these. `documents`: only chunks of these documents; `exclude`: none of theirs; both sorted.
    `tags`: only chunks of documents with all of these tags, or with one if `any_tag`. The full-text
    index knows them. The vectors do not: `documents` says the same to them, and is None where they
    are not searched.
    """

    kbs: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    documents: Ids | None = None
    exclude: Ids | None = None
    tags: tuple[str, ...] | None = None
    any_tag: bool = False
