"""Which documents a read means, as SQL conditions.

Owns: every filter over `documents`.
Refuses to know: what is read of them (queries.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct


class DocumentFilter(Struct, frozen=True, kw_only=True):
    """Which live documents; None leaves that side open. All that are given must hold."""

    ids: Sequence[int] | None = None
    not_ids: Sequence[int] | None = None
    kbs: Sequence[str] | None = None
    types: Sequence[str] | None = None
    tags: Sequence[str] | None = None
    tags_mode: Literal["all", "any"] = "all"
    metadata: dict[str, Any] | None = None
    path_prefix: str | None = None
    path: str | None = None
    url: str | None = None
    source_id: str | None = None
    title_contains: str | None = None
    created_after: str | None = None
    created_before: str | None = None

    def where(self) -> tuple[str, list[Any]]:
        """SQL conditions over `documents`, and their parameters."""
        clauses, values = ["deleted_at is null"], list[Any]()
        for value, clause in (
            (self.ids, "id in (select unnest(?::bigint[]))"),
            (self.not_ids, "id not in (select unnest(?::bigint[]))"),
            (self.kbs, "list_contains(?::varchar[], kb)"),
            (self.types, "list_contains(?::varchar[], type)"),
            (self.tags, f"list_has_{self.tags_mode}(tags, ?::varchar[])"),
            (self.path_prefix, "starts_with(path, ?)"),
            (self.path, "path = ?"),
            (self.url, "url = ?"),
            (self.source_id, "source_id = ?"),
            (self.title_contains, "contains(lower(title), lower(?))"),
            (self.created_after, "created_at > ?"),
            (self.created_before, "created_at < ?"),
        ):
            if value is not None:
                clauses.append(clause)
                values.append(list(value) if isinstance(value, (list, tuple)) else value)
        for key, wanted in (self.metadata or {}).items():
            clause, given = _member_is(key, wanted)
            clauses.append(clause)
            values += given
        return " and ".join(clauses), values

    @property
    def is_open(self) -> bool:
        """True if every live document passes."""
        return self == DocumentFilter(tags_mode=self.tags_mode)

    @property
    def only_kbs(self) -> bool:
        """True if nothing but the knowledge base is restricted."""
        return self == DocumentFilter(kbs=self.kbs, tags_mode=self.tags_mode)


def _member_is(key: str, wanted: Any) -> tuple[str, list[Any]]:
    """That a member of the metadata has this value and its kind; 1 and 1.0 are one number."""
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    if wanted is None:
        return "json_type(metadata, ?) = 'NULL'", [pointer]
    if isinstance(wanted, str):
        return "json_type(metadata, ?) = 'VARCHAR' and metadata ->> ? = ?", [
            pointer, pointer, wanted,
        ]  # fmt: skip
    if isinstance(wanted, bool):
        return "json_type(metadata, ?) = 'BOOLEAN' and metadata ->> ? = ?", [
            pointer, pointer, str(wanted).lower(),
        ]  # fmt: skip
    kinds = "('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE')"
    return f"json_type(metadata, ?) in {kinds} and try_cast(metadata ->> ? as double) = ?", [
        pointer, pointer, float(wanted),
    ]  # fmt: skip
