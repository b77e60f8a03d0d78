"""Turns filters over documents into SQL conditions and into the indexes' labels.

The indexes keep each chunk under a label: its knowledge base, with a suffix for an entry and
another for a superseded entry. So a search leaves these out at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from kbproc.engine.projections.catalog.members import coded_values

_ENTRY, _SUPERSEDED = "#entry", "#superseded"
_LAST = chr(0x10FFFF)  # no character sorts behind it
# Returns the SQL condition that a column is one of some values, and its parameters.
Among = Callable[[str, Iterable[Any]], tuple[str, list[Any]]]
# Returns whether a query with these parameters has few rows, without reading many.
IsFew = Callable[[str, Sequence[Any]], bool]


def label_of(kb: str, type: str, superseded_by: int | None) -> str:
    """Returns the label of a document's chunks."""
    if type != "knowledge":
        return kb
    return kb + (_ENTRY if superseded_by is None else _SUPERSEDED)


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


# A successor ends its predecessor's time. An entry's time begins when it is stored, unless stated.
_TRUE_THEN = (
    "(type <> 'knowledge' or (coalesce(valid_from, created_at) <= ? "
    "and (valid_to is null or valid_to > ?) and not exists (select 1 from documents s "
    "where s.id = documents.superseded_by and coalesce(s.valid_from, s.created_at) <= ?)))"
)


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
    true_at: str | None = None  # only entries that say what was true then, as is known now
    hide_superseded: bool = False
    in_review: bool = False  # only entries in review, as far as the Sight shows them
    own_types: bool = True  # entries and notes pass, too

    def where(self, among: Among, is_few: IsFew, *, by_type: bool = True) -> tuple[str, list[Any]]:
        """Returns SQL conditions over `documents`, and their parameters.

        What few documents meet is a list of ids, which SQLite begins with; what many meet is
        looked up for each row. Without `by_type` SQLite must not begin with the type.
        """
        clauses, values = ["deleted_at is null"], list[Any]()

        def add(clause: str, parameters: Iterable[Any]) -> None:
            clauses.append(clause)
            values.extend(parameters)

        for value, clause in (
            (self.path, "path = ?"),
            (self.url, "url = ?"),
            (_lowered(self.title_contains), "instr(coalesce(title_lower, title), ?) > 0"),
            (self.min_confidence, "confidence >= ?"),
            (self.due_at, "review_after <= ?"),
            (self.verified, "(verified_at is not null) = ?"),
            (self.task_id, "task_id = ?"),
            (self.owner, "created_by = ?"),
            (self.valid_at, "(expires_at is null or expires_at > ?)"),
        ):
            if value is not None:
                add(clause, [value])
        for column, some in (
            ("id", self.ids),
            ("kb", self.kbs),
            ("type" if by_type else "+type", self.types),
            ("source_id", self.source_ids),
        ):
            if some is not None:
                add(*among(column, some))
        for clause, bound in self._moments(is_few):
            add(clause, [bound])
        if self.not_ids is not None:
            clause, parameters = among("id", self.not_ids)
            add(f"not ({clause})", parameters)
        if self.origins is not None:
            clause, parameters = among("origin", self.origins)
            add(f"({clause} or verified_at is not null)", parameters)
        if self.path_prefix is not None:
            add(*_begins("path", self.path_prefix))
        for is_asked, clause in (
            (not self.own_types, "type not in ('knowledge', 'note')"),
            (self.hide_superseded, "superseded_by is null"),
            (self.in_review, "in_review = 1"),
        ):
            if is_asked:
                clauses.append(clause)
        if self.true_at is not None:
            add(_TRUE_THEN, [self.true_at] * 3)
        for query, parameters in self._queries(among):
            add(_listed(query, parameters, is_few), parameters)
        return " and ".join(clauses), values

    def _moments(self, is_few: IsFew) -> Iterator[tuple[str, str]]:
        """Yields the conditions on times of creation and change, each with its parameter."""
        for bound, limit in (
            (self.created_after, "created_at > ?"),
            (self.created_before, "created_at < ?"),
            (self.updated_after, "updated_at > ?"),
        ):
            if bound is not None:
                condition = f"deleted_at is null and {limit}"
                query = f"select id from documents where {condition}"  # noqa: S608
                yield f"id in ({query})" if is_few(query, [bound]) else condition, bound

    def _queries(self, among: Among) -> Iterator[tuple[str, list[Any]]]:
        """Yields queries of documents, each with its parameters; all of them must list one."""
        if self.tags is not None and self.tags_mode == "any":
            clause, parameters = among("tag", self.tags)
            yield f"select document from tags where {clause}", parameters  # noqa: S608
        elif self.tags is not None:
            for tag in self.tags:
                yield "select document from tags where tag = ?", [tag]
        for key, member in (self.metadata or {}).items():
            yield _member_is(key, member)

    @property
    def is_counted(self) -> bool:
        """True if counters tell how many documents pass: they are kept by kb, type and tag."""
        return (self.tags is None or len(self.tags) == 1) and self == DocumentFilter(
            kbs=self.kbs,
            types=self.types,
            own_types=self.own_types,
            tags=self.tags,
            tags_mode=self.tags_mode,
        )

    def counted(self, among: Among) -> tuple[str, list[Any]]:
        """Returns SQL conditions over the counters, and their parameters."""
        clauses = ["1" if self.own_types else "type not in ('knowledge', 'note')"]
        values = list[Any]()
        if self.tags is not None:
            clauses.append("tag = ?")
            values += self.tags
        for column, some in (("kb", self.kbs), ("type", self.types)):
            if some is not None:
                clause, parameters = among(column, some)
                clauses.append(clause)
                values += parameters
        return " and ".join(clauses), values

    @property
    def is_open(self) -> bool:
        """True if every live document passes."""
        return self == self._with_only()

    @property
    def by_label(self) -> DocumentFilter:
        """The conditions that labels can tell, and validity."""
        types = self.types if self.types == ["knowledge"] else None
        return self._with_only(kbs=self.kbs, types=types)

    def _with_only(self, **conditions: Any) -> DocumentFilter:
        return DocumentFilter(
            tags_mode=self.tags_mode,
            valid_at=self.valid_at,
            hide_superseded=self.hide_superseded,
            **conditions,
        )


# `lower` is registered by each connection: SQLite's own knows ASCII only.
_QUESTIONS = (
    "s.title || char(10) || coalesce((select group_concat(question, char(10)) from messages m "
    "where m.session_id = s.id and m.withdrawn_at is null), '')"
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
            f"instr(lower_text({_QUESTIONS}), ?) > 0": _lowered(self.text),
        }
        present = {clause: value for clause, value in bounds.items() if value is not None}
        clauses, values = ["s.deleted_at is null", *present], list[Any](present.values())
        if self.kbs is not None:  # the column holds a JSON list of slugs
            uses_any = " or ".join(["s.kbs is null", *["instr(s.kbs, ?) > 0"] * len(self.kbs)])
            clauses.append(f"({uses_any})")
            values += [f'"{kb}"' for kb in self.kbs]
        return " and ".join(clauses), values


def _lowered(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _begins(column: str, prefix: str) -> tuple[str, list[Any]]:
    """Returns the SQL condition that a text begins with `prefix`; an index can answer it."""
    condition = f"{column} >= ? and substr({column}, 1, ?) = ?"
    stem = prefix.rstrip(_LAST)
    if not stem:
        return condition, [prefix, len(prefix), prefix]
    following = ord(stem[-1]) + 1
    after = stem[:-1] + chr(0xE000 if following == 0xD800 else following)
    return f"{column} < ? and {condition}", [after, prefix, len(prefix), prefix]


def _member_is(key: str, value: Any) -> tuple[str, list[Any]]:
    """Returns the query of the documents whose metadata have a member, and its parameters.

    The kinds must be equal, too; 1 and 1.0 are one number.
    """
    codings = coded_values(value)
    kinds, values = [kind for kind, _ in codings], [text for _, text in codings]
    marks = ",".join("?" * len(codings))
    query = (
        f"select document from metadata where key = ? and kind in ({marks}) and value in ({marks})"  # noqa: S608
    )
    return query, [key, *kinds, *values]


def _listed(query: str, values: Sequence[Any], is_few: IsFew) -> str:
    """Returns the SQL condition that a query lists the document."""
    if is_few(query, values):
        return f"id in ({query})"
    return f"exists ({query} and document = documents.id)"
