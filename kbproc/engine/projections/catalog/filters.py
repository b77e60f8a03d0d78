"""Turns filters over documents into SQL conditions and into the indexes' labels.

The indexes keep each chunk under a label: its knowledge base, with a suffix for an entry and
another for a superseded entry. So a search leaves these out at no cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

_ENTRY, _SUPERSEDED = "#entry", "#superseded"
LABEL = (
    "d.kb || case when d.type <> 'knowledge' then '' "
    f"when d.superseded_by is null then '{_ENTRY}' else '{_SUPERSEDED}' end"
)


def labels(
    kbs: Iterable[str], *, documents: bool = True, entries: bool = True, superseded: bool = True
) -> tuple[str, ...]:
    """Returns the labels of the documents, entries and superseded entries of knowledge bases."""
    suffixes = [("", documents), (_ENTRY, entries), (_SUPERSEDED, entries and superseded)]
    return tuple(kb + suffix for kb in kbs for suffix, is_included in suffixes if is_included)


def kb_of(label: str) -> str:
    return label.partition("#")[0]


def superseded_labels(kbs: Iterable[str]) -> tuple[str, ...]:
    return tuple(kb + _SUPERSEDED for kb in kbs)


class DocumentFilter(Struct, frozen=True, kw_only=True):
    """A filter over live documents. All conditions must hold; None is no condition."""

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
    source_ids: Sequence[str] | None = None
    title_contains: str | None = None
    created_after: str | None = None
    created_before: str | None = None
    updated_after: str | None = None
    min_confidence: int | None = None
    origins: Sequence[str] | None = None  # a verified entry passes, whatever its origin
    due_at: str | None = None  # only entries that a person should have checked again by then
    verified: bool | None = None
    task_id: str | None = None
    owner: str | None = None
    valid_at: str | None = None
    hide_superseded: bool = False
    own_types: bool = True  # entries and notes pass, too

    def where(self) -> tuple[str, list[Any]]:
        """Returns SQL conditions over `documents`, and their parameters."""
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
            (self.source_ids, "source_id in (select unnest(?::varchar[]))"),
            (self.title_contains, "contains(lower(title), lower(?))"),
            (self.created_after, "created_at > ?"),
            (self.created_before, "created_at < ?"),
            (self.updated_after, "updated_at > ?"),
            (self.min_confidence, "confidence >= ?"),
            (self.origins, "(list_contains(?::varchar[], origin) or verified_at is not null)"),
            (self.due_at, "review_after <= ?"),
            (self.verified, "(verified_at is not null) = ?"),
            (self.task_id, "task_id = ?"),
            (self.owner, "created_by = ?"),
            (self.valid_at, "(expires_at is null or expires_at > ?)"),
        ):
            if value is not None:
                clauses.append(clause)
                values.append(list(value) if isinstance(value, (list, tuple)) else value)
        if not self.own_types:
            clauses.append("type not in ('knowledge', 'note')")
        if self.hide_superseded:
            clauses.append("superseded_by is null")
        for key, member in (self.metadata or {}).items():
            clause, parameters = _member_is(key, member)
            clauses.append(clause)
            values += parameters
        return " and ".join(clauses), values

    @property
    def is_open(self) -> bool:
        """True if every live document passes."""
        return self == self._with_only()

    @property
    def only_kbs(self) -> bool:
        """True if its only conditions are knowledge bases, the type of entries, and validity."""
        return self == self._with_only(kbs=self.kbs, types=self._entry_types)

    @property
    def _entry_types(self) -> Sequence[str] | None:
        return self.types if self.types == ["knowledge"] else None

    def _with_only(self, **conditions: Any) -> DocumentFilter:
        return DocumentFilter(
            tags_mode=self.tags_mode,
            valid_at=self.valid_at,
            hide_superseded=self.hide_superseded,
            **conditions,
        )


_QUESTIONS = (
    "concat_ws(chr(10), s.title, (select string_agg(m.question, chr(10)) from messages m where "
    "m.session_id = s.id and m.withdrawn_at is null))"
)


class SessionFilter(Struct, frozen=True, kw_only=True):
    """A filter over live sessions. All conditions must hold; None is no condition.

    `kbs`: only those that may use one of these. `text`: only those with it in their title or
    questions; an answer may hold what the caller may not see.
    """

    created_after: str | None = None
    created_before: str | None = None
    updated_after: str | None = None
    agent: str | None = None
    kbs: Sequence[str] | None = None
    text: str | None = None

    def where(self) -> tuple[str, list[Any]]:
        """Returns SQL conditions over `seen.sessions s`, and their parameters."""
        bounds = {
            "s.created_at > ?": self.created_after,
            "s.created_at < ?": self.created_before,
            "s.updated_at > ?": self.updated_after,
            "s.agent = ?": self.agent,
            "(s.kbs is null or list_has_any(s.kbs, ?::varchar[]))": self.kbs,
            f"contains(lower({_QUESTIONS}), ?)": None if self.text is None else self.text.lower(),
        }
        present = {clause: value for clause, value in bounds.items() if value is not None}
        values = [list(v) if isinstance(v, (list, tuple)) else v for v in present.values()]
        return " and ".join(["s.deleted_at is null", *present]), values


def _member_is(key: str, value: Any) -> tuple[str, list[Any]]:
    """Returns the SQL condition that a member of the metadata equals a value, and its parameters.

    The kinds must be equal, too; 1 and 1.0 are one number.
    """
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    if value is None:
        return "json_type(metadata, ?) = 'NULL'", [pointer]
    if isinstance(value, str):
        sql = "json_type(metadata, ?) = 'VARCHAR' and metadata ->> ? = ?"
        return sql, [pointer, pointer, value]
    if isinstance(value, bool):
        sql = "json_type(metadata, ?) = 'BOOLEAN' and metadata ->> ? = ?"
        return sql, [pointer, pointer, str(value).lower()]
    # Doubles would confuse integers beyond 2**53 with their neighbours.
    sql = (
        "json_type(metadata, ?) in ('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE') and "
        "case when json_type(metadata, ?) = 'DOUBLE' then try_cast(metadata ->> ? as double) = ? "
        "else try_cast(metadata ->> ? as hugeint) = try_cast(? as hugeint) end"
    )
    integer = str(int(value)) if value == int(value) else None
    return sql, [pointer, pointer, pointer, float(value), pointer, integer]
