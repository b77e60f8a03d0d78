"""Queries the catalog: each method returns rows as far as the reader's Sight shows them.

Rows that are shown are read whole, so that their checksums are verified. Pages are keyset pages:
each starts after the last key of the page before.

A piece of an answer that may repeat a hidden document is shown as if that document were purged.
The records that the catalog has folded in are found by document, time, actor and token, without
reading the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import asdict

from kbproc.base.hashes import sha256
from kbproc.engine.events.entry import EntryFacts
from kbproc.engine.projections.catalog.filters import DocumentFilter, SessionFilter, label_of
from kbproc.engine.projections.catalog.reader import (
    NOTES,
    CatalogReader,
    K,
    damage_error,
)
from kbproc.engine.projections.catalog.rows import (
    AgentRow,
    ChainRow,
    ChunkRow,
    DocumentRow,
    EntryRow,
    EventRow,
    Head,
    HitRow,
    Ids,
    IndexRow,
    KbRow,
    MessageRow,
    PieceRow,
    Roster,
    SessionRow,
    StandingRow,
    TokenRow,
    TurnRow,
    WatchRow,
    facts_in,
)
from kbproc.engine.projections.catalog.tables import DERIVED, codec_of, types

_PAGE = 500  # chunks, or documents, that are read at once
_FEW = 5000  # documents that are listed for a filter before SQLite looks at their rows
NO_WRITE = "type <> 'doc.written'"  # the condition of the index over types of events
# The plus, because SQLite 3.34 would scan the whole index of documents to spare DISTINCT a sort.
TOUCHED = "select distinct document_id from events where seq > ? and +document_id is not null"
_TURNS = (
    "select m.id, m.session_id, (select count(*) from messages n where n.session_id = m.session_id "
    "and n.id <= m.id), s.title, s.agent, m.question, '', m.asked_at, m.asked_by "
    "from messages m join seen.sessions s on s.id = m.session_id "
    "where m.withdrawn_at is null and {where} order by m.id"
)


@cache
def _places(kind: type[msgspec.Struct], table: str) -> list[int]:
    """Returns the columns of a struct's members, by their places in the table."""
    places = codec_of(table).places
    return [places[name] for name in kind.__struct_fields__]


class Queries(CatalogReader):
    """All reads of the catalog over one connection; CatalogReader restricts the visible rows."""

    def _structs(self, kind: type[K], table: str, rest: str, values: Sequence[Any]) -> list[K]:
        """Returns whole rows of a table as structs of `kind`. Raises DatabaseError.

        `rest`: the SQL from the table's name on.
        """
        rows = self._rows(f"select {table}.* from {rest}", values)  # noqa: S608
        decode, places = codec_of(table).values, _places(kind, table)
        structs = []
        for row in rows:
            columns = decode(row)
            structs.append(kind(*[columns[place] for place in places]))
        return structs

    def _documents(self, kind: type[K], condition: str, values: Sequence[Any]) -> list[K]:
        """Returns the rows of `seen.documents` that meet the condition, as structs of `kind`."""
        rest = f"seen.documents as documents where {condition}"
        return self._structs(kind, "documents", rest, values)

    def head(self) -> Head:
        return self._structs(Head, "head", "head", [])[0]

    def miscounted(self) -> list[str]:
        """Returns the tables of counters that differ from a count of the documents."""
        counted = {
            "counts": "select kb, type, count(*), sum(chunk_count), sum(size_bytes) "
            "from documents where deleted_at is null and in_review is not 1 group by kb, type",
            "tag_counts": "select tag, kb, type, count(*) from tags join documents "
            "on id = document group by tag, kb, type",
        }
        return [
            table
            for table, sql in counted.items()
            if set(self._rows(sql)) != set(self._rows(f"select * from {table}"))  # noqa: S608
        ]

    def digest(self) -> str:
        """Returns a digest of every row of every table; equal catalogs have equal digests."""
        hash = sha256()
        for table in (*types(), *DERIVED):
            for row in sorted(map(repr, self._db.execute(f"select * from {table}"))):  # noqa: S608
                hash.update(row.encode())
        return hash.hexdigest()

    # ------------------------------------------------------- knowledge bases

    def kbs(self, after: str = "", limit: int = 1_000_000) -> list[KbRow]:
        rest = "seen.kbs as kbs where slug > ? order by slug limit ?"
        return self._structs(KbRow, "kbs", rest, [after, limit])

    def kb(self, slug: str) -> KbRow | None:
        rows = self._structs(KbRow, "kbs", "seen.kbs as kbs where slug = ?", [slug])
        return rows[0] if rows else None

    def kb_slugs(self) -> list[str]:
        return [row[0] for row in self._rows("select slug from seen.kbs order by slug")]

    def kb_counts(self, kbs: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Returns slug → number of documents, number of chunks, bytes of the sources."""
        condition, values = self._among("kb", kbs)
        sql = (
            "select kb, sum(documents), sum(chunks), sum(bytes) from seen.counts "  # noqa: S608
            f"where {condition} group by kb"
        )
        return {row[0]: row[1:] for row in self._rows(sql, values)}

    # ------------------------------------------------------------- documents

    def documents(
        self, filter: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """Returns documents by id, from the one after `after`."""
        where, values = self._where(filter)
        condition = f"id > ? and {where} order by id limit ?"
        return self._documents(DocumentRow, condition, [after, *values, limit])

    def document(self, id: int) -> DocumentRow | None:
        """Returns a document, even if it is deleted; see `deleted_at`."""
        return next(iter(self._documents(DocumentRow, "id = ?", [id])), None)

    def documents_by_id(self, ids: Iterable[int]) -> dict[int, DocumentRow]:
        """Returns documents by id, deleted ones included."""
        condition = self._among("id", ids)
        return {row.id: row for row in self._documents(DocumentRow, *condition)}

    def in_review(self) -> int:
        """Returns how many visible entries are in review."""
        sql = "select count(*) from seen.documents where in_review = 1 and deleted_at is null"
        return int(self._value(sql))

    def all_documents(self) -> list[DocumentRow]:
        """Returns all documents by id, deleted and purged ones included."""
        return self._documents(DocumentRow, "1 order by id", [])

    def all_entries(self) -> list[EntryRow]:
        """Returns all entries by id, deleted ones included."""
        return self._documents(EntryRow, "type = 'knowledge' order by id", [])

    def count(self, filter: DocumentFilter) -> int:
        if filter.is_counted:
            where, values = filter.counted(self._among)
            table = "counts" if filter.tags is None else "tag_counts"
            return int(self._value(f"select {_total('documents', table)} where {where}", values))
        where, values = self._where(filter, whole=True)
        sql = f"select count(*) from seen.documents as documents where {where}"  # noqa: S608
        return int(self._value(sql, values))

    def _where(self, filter: DocumentFilter, *, whole: bool = False) -> tuple[str, list[Any]]:
        """Returns SQL conditions over `seen.documents as documents`, and their parameters.

        `whole`: all that meet them are read, so that a long list of ids is worth making.
        """
        if filter.kbs is not None:
            visible_kbs = [kb for kb in filter.kbs if self.sight.sees(kb)]
            filter = msgspec.structs.replace(filter, kbs=visible_kbs)
        visible: int = self._value(f"select {_total('documents')}")
        most = visible // 2 if whole else min(_FEW, visible)

        def is_few(query: str, values: Sequence[Any]) -> bool:
            sql = f"select count(*) from ({query} limit ?)"  # noqa: S608
            return bool(self._value(sql, [*values, most]) < most)

        return filter.where(self._among, is_few, by_type=self._begins_with(filter.types))

    def _begins_with(self, types: Sequence[str] | None) -> bool:
        """Returns whether fewer documents have one of these types than the caller may see."""
        if types is None or self.sight.kbs is None:
            return True
        among, values = self._among("type", types)
        sql = f"select coalesce(sum(documents), 0) from counts where {among}"  # noqa: S608
        return bool(self._value(sql, values) < self._value(f"select {_total('documents')}"))

    def document_ids(self, filter: DocumentFilter) -> Ids:
        """Returns the sorted ids of documents.

        As one text, because many rows take several times as long to pass.
        """
        import numpy as np

        where, values = self._where(filter, whole=filter.ids is None)
        listed = f"select id from seen.documents as documents where {where}"  # noqa: S608
        ids = self._value(f"select group_concat(id) from ({listed})", values)  # noqa: S608
        return np.sort(
            np.fromstring(ids, dtype=np.int64, sep=",") if ids else np.empty(0, np.int64)
        )

    def by_type(self) -> dict[str, int]:
        sql = "select type, sum(documents) from seen.counts group by type order by type"
        return dict(self._rows(sql))

    def source_bytes(self) -> int:
        return int(self._value(f"select {_total('bytes')}"))

    def tags(
        self, kbs: Sequence[str] | None, after: str, limit: int, *, by_count: bool = False
    ) -> list[tuple[str, int, str]]:
        """Returns tags, each with its count and its sort key; `after` is such a key."""
        by_descending = "printf('%010d', 1000000000 - sum(documents)) || ' ' || tag"
        key = by_descending if by_count else "tag"
        condition, values = ("1", []) if kbs is None else self._among("kb", kbs)
        sql = (
            f"select tag, sum(documents), {key} as place from seen.tag_counts where {condition} "  # noqa: S608
            "group by tag having place > ? order by place limit ?"
        )
        return self._rows(sql, [*values, after, limit])

    def paths(self, kb: str) -> dict[str, DocumentRow]:
        """Returns path → document, for the live documents of a knowledge base made from files."""
        condition = "kb = ? and path is not null and deleted_at is null"
        return {str(row.path): row for row in self._documents(DocumentRow, condition, [kb])}

    def documents_at(self, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """Returns path → document, for the live documents made from these files."""
        among, values = self._among("path", paths)
        condition = f"kb = ? and deleted_at is null and {among}"
        rows = self._documents(DocumentRow, condition, [kb, *values])
        return {str(row.path): row for row in rows}

    def pruned(self, kb: str) -> list[DocumentRow]:
        """Returns the documents that an ingest removed because their files were gone, by id."""
        condition = (
            "kb = ? and path is not null and deleted_at is not null and (id, touched) in "
            "(select document_id, seq from events where type = 'doc.deleted' "
            "and type <> 'doc.written' and method = 'doc.ingest') order by id"
        )
        return self._documents(DocumentRow, condition, [kb])

    def with_unread(self, kb: str) -> list[DocumentRow]:
        """Returns the live documents whose texts lack parts of their sources, by id."""
        condition = (
            "kb = ? and deleted_at is null and instr(source_facts, '\"unread\":{') > 0 order by id"
        )
        return self._documents(DocumentRow, condition, [kb])

    def failures(self, kb: str) -> dict[str, tuple[str, str, str | None]]:
        """Returns path → error type, message, sha256 of the bytes that failed."""
        sql = "select path, error, message, sha256 from failures where kb = ? order by path"
        return {row[0]: (row[1], row[2], row[3]) for row in self._rows(sql, [kb])}

    # ---------------------------------------------------------------- chunks

    def chunk_total(self) -> int:
        return int(self._value(f"select {_total('chunks')}"))

    def chunks_of(self, document_id: int, after: int = 0, limit: int = 1_000_000) -> list[ChunkRow]:
        """Returns a document's chunks in order, from the one after chunk id `after`."""
        rest = "seen.chunks as chunks where document_id = ? and id > ? order by id limit ?"
        return self._structs(ChunkRow, "chunks", rest, [document_id, after, limit])

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        condition, values = self._among("id", ids)
        rows = self._structs(ChunkRow, "chunks", f"seen.chunks as chunks where {condition}", values)
        return {row.id: row for row in rows}

    def chunk_counts(self, after_seq: int = 0) -> dict[int, int]:
        """Returns document id → number of chunks, for live documents that have any.

        `after_seq`: only documents that changed after this position.
        """
        sql = (
            "select id, chunk_count from seen.documents where deleted_at is null "
            "and chunk_count > 0"
        )
        if not after_seq:
            return dict(self._rows(sql))
        sql += f" and touched > ? and id in ({TOUCHED})"
        return dict(self._rows(sql, [after_seq, after_seq]))

    def hit_rows(self, ids: Sequence[int]) -> dict[int, HitRow]:
        """Returns chunks with the columns of their documents."""
        condition, values = self._among("chunks.id", ids)
        rows = self._chunks_in_documents("seen.documents", condition, values)
        return {chunk[0]: _hit_row(chunk, document) for chunk, document in rows}

    def _chunks_in_documents(
        self, table: str, condition: str, values: Sequence[Any]
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yields the columns of chunks, each with those of its document.

        An order by the plain id makes SQLite read all chunks in that order; by `+id` it does not.
        """
        rows = self._rows(
            f"select chunks.*, documents.* from chunks join {table} as documents "  # noqa: S608
            f"on documents.id = chunks.document_id where {condition}",
            values,
        )
        chunks, documents = codec_of("chunks"), codec_of("documents")
        width = len(chunks.columns) + 1  # a row ends with its checksum
        decoded: dict[int, list[Any]] = {}  # because one document may have many of the chunks
        own = chunks.columns.index("document_id")
        for row in rows:
            if (document := decoded.get(row[width])) is None:
                document = decoded[row[width]] = documents.values(row[width:])
            chunk = chunks.values(row[:width])
            if chunk[own] != row[width]:  # SQLite has joined them by the index alone
                raise damage_error("an index")
            yield chunk, document

    # ------------------------------------------------- standing instructions

    def has_standing(self) -> bool:
        return bool(self._value("select exists(select 1 from standing)"))

    def standing(
        self,
        filter: DocumentFilter,
        subjects: Iterable[str],
        limit: int,
        chunk_ids: Sequence[int] | None = None,
    ) -> list[StandingRow]:
        """Returns instructions of the filtered documents that are about one of the subjects.

        First come those about most of them, then the newest. `chunk_ids`: only those in these.
        """
        among, values = self._among("subject", subjects)
        # Each row looks its document up, so that no condition is worth a list of documents.
        where, parameters = filter.where(self._among, lambda query, values: False)
        if chunk_ids is not None:
            clause, ids = self._among("chunk", chunk_ids)
            among, values = f"{among} and {clause}", [*values, *ids]
        rows = self._rows(
            "select *, (select substr(text, at + 1, size) from chunks where id = chunk) from ("  # noqa: S608
            "select chunk, at, size, said, number from (select *, count(*) as number from standing "
            f"where {among} group by chunk, at) as standing "
            "where exists (select 1 from seen.documents as documents "
            f"where documents.id = standing.document and {where}) "
            "order by number desc, said desc, chunk desc, at desc limit ?)",
            [*values, *parameters, limit],
        )
        return [StandingRow(*row) for row in rows]

    # --------------------------------------------------------------- entries

    def entry(self, id: int) -> EntryRow | None:
        """Returns an entry, even if it is deleted; see `deleted_at`."""
        condition = "id = ? and type = 'knowledge'"
        return next(iter(self._documents(EntryRow, condition, [id])), None)

    def entries(
        self, filter: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[EntryRow]:
        """Returns entries by id, from the one after `after`."""
        where, values = self._where(filter)
        condition = f"id > ? and type = 'knowledge' and {where} order by id limit ?"
        return self._documents(EntryRow, condition, [after, *values, limit])

    def entries_by_id(self, ids: Sequence[int]) -> dict[int, EntryRow]:
        """Returns entries by id, deleted ones included."""
        condition, values = self._among("id", ids)
        rows = self._documents(EntryRow, f"type = 'knowledge' and {condition}", values)
        return {row.id: row for row in rows}

    def entry_facts(self, id: int) -> EntryFacts | None:
        """Returns an entry's facts; None if the document isn't an entry."""
        row = self.entry(id)
        return None if row is None else facts_in(asdict(row))

    def superseded_by(self, ids: Sequence[int]) -> list[EntryRow]:
        """Returns the live entries whose direct successor is one of these, by id."""
        among, values = self._among("superseded_by", ids)
        condition = f"deleted_at is null and {among} order by id"
        return self._documents(EntryRow, condition, values)

    def successors(self, head: int) -> dict[int, int]:
        """Returns each superseded entry behind this head → its direct successor."""
        sql = "select id, superseded_by from documents where head = ? and superseded_by is not null"
        return dict(self._rows(sql, [head]))

    def chains(self, ids: Sequence[int]) -> dict[int, ChainRow]:
        """Returns these entries and all that are linked with them, over any number of steps.

        Deleted entries are included, purged ones are not.
        """
        condition, values = self._among("id", ids)
        sql = (
            "select id, superseded_by, deleted_at is null from documents where head in "  # noqa: S608
            f"(select head from documents where {condition})"
        )
        return {
            id: ChainRow(id, successor, bool(live))
            for id, successor, live in self._rows(sql, values)
        }

    def entries_owned(self, owner: str) -> int:
        """Returns how many live entries an owner has, in all knowledge bases."""
        sql = (
            "select count(*) from documents where type = 'knowledge' and created_by = ? "
            "and deleted_at is null"
        )
        return int(self._rows(sql, [owner])[0][0])

    # ----------------------------------------------------------------- notes

    def note(self, agent: str, slug: str) -> DocumentRow | None:
        """Returns a live note."""
        condition = "kb = ? and source_id = ? and deleted_at is null"
        return next(iter(self._documents(DocumentRow, condition, [NOTES + agent, slug])), None)

    def notes(
        self, agent: str, *, since: str = "", after: str = "", limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """Returns live notes that changed after `since`, by slug, from the one after `after`."""
        condition = "kb = ? and deleted_at is null and source_id > ? and updated_at > ? "
        condition += "order by source_id limit ?"
        return self._documents(DocumentRow, condition, [NOTES + agent, after, since, limit])

    def notes_count(self, agent: str, *, since: str = "") -> int:
        sql = (
            "select count(*) from seen.documents where kb = ? and deleted_at is null "
            "and updated_at > ?"
        )
        return int(self._rows(sql, [NOTES + agent, since])[0][0])

    # ---------------------------------------------------------------- agents

    def agents(self, after: str = "", limit: int = 1_000_000) -> list[AgentRow]:
        """Returns live agents by slug, from the one after `after`."""
        rest = "agents where slug > ? and deleted_at is null order by slug limit ?"
        return self._structs(AgentRow, "agents", rest, [after, limit])

    def agent(self, slug: str) -> AgentRow | None:
        """Returns an agent, even if it is deleted."""
        rows = self._structs(AgentRow, "agents", "agents where slug = ?", [slug])
        return rows[0] if rows else None

    def roster(self) -> Roster:
        agents = self._structs(AgentRow, "agents", "agents order by slug", [])
        entries = self._rows(
            "select distinct kb from documents where type = 'knowledge' order by kb"
        )
        superseded = self._rows(
            "select distinct kb, superseded_by from documents where type = 'knowledge' "
            "and superseded_by is not null and deleted_at is null order by kb"
        )
        expiring = self._rows(
            "select expires_at, id from documents where expires_at is not null "
            "and deleted_at is null order by 1, 2"
        )
        return Roster(
            agents={row.slug: row for row in agents},
            kbs=tuple(slug for (slug,) in self._rows("select slug from kbs order by slug")),
            entries=tuple(kb for (kb,) in entries),
            superseded=tuple(dict.fromkeys(kb for kb, _ in superseded)),
            successors=frozenset(id for _, id in superseded),
            moments=[moment for moment, _ in expiring],
            expiring=[id for _, id in expiring],
            watches=self.watches(),
        )

    def watches(self) -> list[WatchRow]:
        """Returns the watched folders by path, then by machine."""
        return self._structs(WatchRow, "watches", "watches order by path, machine", [])

    # -------------------------------------------------------------- sessions

    def sessions(
        self,
        filter: SessionFilter = SessionFilter(),  # noqa: B008  it is never changed
        *,
        after: int = 0,
        limit: int = 1_000_000,
    ) -> list[SessionRow]:
        """Returns live sessions by id, from the one after `after`."""
        where, values = filter.where()
        return self._sessions(
            f"s.id > ? and {where} order by s.id limit ?", [after, *values, limit]
        )

    def session(self, id: int) -> SessionRow | None:
        """Returns a session, even if it is deleted."""
        return next(iter(self._sessions("s.id = ?", [id])), None)

    def _sessions(self, condition: str, values: Sequence[Any]) -> list[SessionRow]:
        rows = self._rows(f"select s.* from seen.sessions s where {condition}", values)  # noqa: S608
        among, ids = self._among("session_id", [row[0] for row in rows])
        sql = (
            "select session_id, count(*) from messages where withdrawn_at is null "  # noqa: S608
            f"and {among} group by session_id"
        )
        counts = dict(self._rows(sql, ids)) if rows else {}
        decode = codec_of("sessions").values
        return [SessionRow(*[*decode(row), counts.get(row[0], 0)]) for row in rows]

    def messages(
        self, session: int, *, before: int = 2**62, limit: int = 1_000_000
    ) -> list[MessageRow]:
        """Returns the last messages before `before` in order, without withdrawn ones."""
        condition = "session_id = ? and id < ? and withdrawn_at is null order by id desc limit ?"
        return self._messages(condition, [session, before, limit])[::-1]

    def message(self, id: int) -> MessageRow | None:
        """Returns a message, even if it is withdrawn."""
        return next(iter(self._messages("id = ?", [id])), None)

    def _messages(self, condition: str, values: Sequence[Any]) -> list[MessageRow]:
        rows = self._rows(f"select * from messages where {condition}", values)  # noqa: S608
        decode = codec_of("messages").values
        messages = [MessageRow(*[*decode(row), "", None]) for row in rows]
        if not messages:
            return []
        if self.sight.is_narrow:
            return [self._as_visible(message) for message in messages]
        pieces = self._pieces_of([message.id for message in messages])
        return [_answered(message, pieces.get(message.id, [])) for message in messages]

    def _pieces_of(self, messages: Sequence[int], kind: str = "%") -> dict[int, list[PieceRow]]:
        """Returns message → its pieces of that kind in order, of all its attempts."""
        among, ids = self._among("message_id", messages)
        sql = f"select * from pieces where {among} and kind like ? order by message_id, seq, idx"  # noqa: S608
        pieces: dict[int, list[PieceRow]] = {}
        decode = codec_of("pieces").values
        for row in self._rows(sql, [*ids, kind]):
            message, *piece = decode(row)
            pieces.setdefault(message, []).append(PieceRow(*piece))
        return pieces

    def turns(self, filter: SessionFilter, beginnings: Sequence[str]) -> list[TurnRow]:
        """Returns the turns of live sessions by id, each with its text as far as it is visible.

        Leaves out turns in ASCII without any of these beginnings of folded words.
        """
        where, values = filter.where()
        rows = [TurnRow(*row) for row in self._rows(_TURNS.format(where=where), values)]
        pieces = self._last_pieces([row.id for row in rows])
        rows = [
            msgspec.structs.replace(row, text="".join(piece.said or "" for piece in pieces[row.id]))
            for row in rows
        ]
        rows = [row for row in rows if _may_match(row, beginnings)]
        return self._visible_turns(rows, pieces) if self.sight.is_narrow else rows

    def _last_pieces(self, messages: Sequence[int]) -> dict[int, list[PieceRow]]:
        """Returns message → the pieces of text of its last attempt."""
        among, ids = self._among("id", messages)
        attempts = self._rows(f"select id, attempt_seq from messages where {among}", ids)  # noqa: S608
        pieces = self._pieces_of(messages, "delta")
        return {
            id: [piece for piece in pieces.get(id, []) if piece.seq >= attempt]
            for id, attempt in attempts
        }

    def _visible_turns(
        self, rows: Sequence[TurnRow], pieces: dict[int, list[PieceRow]]
    ) -> list[TurnRow]:
        """Returns turns without the pieces that may repeat hidden documents; see `shown`."""
        ids = [row.id for row in rows]
        referred = self._referred_in_turns(ids)
        pieces = {id: pieces[id] for id in ids}
        repeated = (piece.documents or () for row in pieces.values() for piece in row)
        visible = self._visible_ids({id for some in (*referred.values(), *repeated) for id in some})
        return [
            msgspec.structs.replace(
                row,
                text="".join(
                    piece.said or ""
                    for piece in pieces[row.id]
                    if _visible_piece(piece, referred[row.id], visible).kind == "delta"
                ),
            )
            for row in rows
        ]

    def _referred_in_turns(self, messages: Sequence[int]) -> dict[int, set[int]]:
        """Returns message → what `_referred_ids` returns for it."""
        among, values = self._among("id", messages)
        sql = (
            "select m.session_id, m.id, p.said from messages m left join pieces p on "  # noqa: S608
            "p.message_id = m.id and p.kind = 'references' where m.session_id in (select "
            f"session_id from messages where {among}) order by m.id, p.seq, p.idx"
        )
        by_session: dict[int, set[int]] = {}
        by_message: dict[int, set[int]] = {}
        for session, message, references in self._rows(sql, values):
            ids = by_session.get(session, set()) | set(
                _cited_ids(PieceRow(0, 0, "references", references))
            )
            by_session[session] = by_message[message] = ids
        return by_message

    def _as_visible(self, row: MessageRow) -> MessageRow:
        return _answered(row, self.pieces(row.id, after=(row.attempt_seq - 1, 2**31 - 1)))

    def message_asked(self, seq: int) -> int | None:
        """Returns the message whose question this record asked."""
        rows = self._rows("select id from messages where asked_seq = ? limit 1", [seq])
        return int(rows[0][0]) if rows else None

    def pieces(
        self, message: int, *, after: tuple[int, int] = (0, 0), limit: int = 1_000_000
    ) -> list[PieceRow]:
        """Returns pieces in order, from the one after `after`: seq, and index in the record."""
        rest = "pieces where message_id = ? and (seq, idx) > (?, ?) order by seq, idx limit ?"
        pieces = self._structs(PieceRow, "pieces", rest, [message, *after, limit])
        return self.shown(message, pieces)

    def shown(self, message: int, pieces: Sequence[PieceRow]) -> list[PieceRow]:
        """Returns pieces as the caller may see them; the catalog need not hold them yet."""
        if not self.sight.is_narrow:
            return list(pieces)
        referred = self._referred_ids(message)
        ids = set(referred)
        for piece in pieces:
            ids.update(_cited_ids(piece) if piece.kind == "references" else piece.documents or ())
        visible = self._visible_ids(ids)
        return [_visible_piece(piece, referred, visible) for piece in pieces]

    def _referred_ids(self, message: int) -> set[int]:
        """Returns the documents to which an answer and earlier ones in its session refer.

        0 stands for passages of other stores.
        """
        sql = (
            "select p.said from pieces p join messages m on p.message_id = m.id where m.id <= ? "
            "and p.kind = 'references' and m.session_id = "
            "(select session_id from messages where id = ?)"
        )
        pieces = (
            PieceRow(0, 0, "references", references)
            for (references,) in self._rows(sql, [message] * 2)
        )
        return {id for piece in pieces for id in _cited_ids(piece)}

    def repeated(self, session: int, before: int) -> set[int]:
        """Returns the documents whose words the visible answers before that message repeat."""
        document_ids: set[int] = set()
        for message in self.messages(session, before=before):
            if message.references is not None:
                document_ids.update(_cited_ids(PieceRow(0, 0, "references", message.references)))
            for piece in self.pieces(message.id):
                if piece.kind == "delta":
                    document_ids.update(piece.documents or ())
        return document_ids - {0}

    def _visible_ids(self, ids: Iterable[int]) -> set[int]:
        """Returns the documents whose texts are visible."""
        condition, values = self._among("id", ids)
        if not self.sight.texts:  # entries and notes have scopes of their own
            condition += f" and (type = 'knowledge' or substr(kb, 1, {len(NOTES)}) = '{NOTES}')"
        rows = self._rows(f"select id from seen.documents where {condition}", values)  # noqa: S608
        return {int(id) for (id,) in rows}

    def being_answered(self) -> list[tuple[int, int]]:
        """Returns session and message of each answer that has not ended."""
        sql = "select session_id, id from messages where status is null order by id"
        return self._rows(sql)

    # ---------------------------------------------------- records and tokens

    def seq_at(self, ts: str, *, before: bool = False) -> int:
        """Returns the last seq at that moment, or the last `before` it; 0 without any.

        It halves the range of records, because their times never go back.
        """
        newest = self._rows("select seq from events order by seq desc limit 1")
        first, after = 1, newest[0][0] + 1 if newest else 1  # the last record lies before `after`
        while first < after:
            middle = (first + after) // 2
            rows = self._rows("select seq, ts from events where seq >= ? limit 1", [middle])
            if rows and (rows[0][1] < ts or (rows[0][1] == ts and not before)):
                first = rows[0][0] + 1
            else:
                after = middle
        last = self._rows("select seq from events where seq < ? order by seq desc limit 1", [first])
        return int(last[0][0]) if last else 0

    def ts_of(self, seq: int) -> str:
        """Returns the time of the last record up to `seq`; "" before the first."""
        sql = "select ts from events where seq <= ? order by seq desc limit 1"
        rows = self._rows(sql, [seq])
        return str(rows[0][0]) if rows else ""

    def events_of_document(self, id: int, after_seq: int = 0) -> list[EventRow]:
        """Returns a document's events in order, including its purge."""
        rest = "events where document_id = ? and seq > ? order by seq, idx"
        return self._structs(EventRow, "events", rest, [id, after_seq])

    def events_of_records(self, seqs: Sequence[int]) -> list[EventRow]:
        condition, values = self._among("seq", seqs)
        rest = f"events where {condition} order by seq, idx, place"
        return self._structs(EventRow, "events", rest, values)

    def matching_records(
        self,
        after_seq: int,
        limit: int,
        types: Sequence[str] | None,
        actor: str | None,
        document_id: int | None,
    ) -> list[int]:
        """Returns the seqs of matching records in order, once for each matching event.

        Without `types` and `document_id`, records that have a token and no event match, too.
        """
        by_actor, of_actor = ("", []) if actor is None else (" and actor = ?", [actor])
        sql, values = f"select seq from events where seq > ?{by_actor}", [after_seq, *of_actor]  # noqa: S608
        if types is not None:
            condition, parameters = self._among("type", types)
            if "doc.written" not in types:
                condition += f" and {NO_WRITE}"
            sql, values = f"{sql} and {condition}", values + parameters
        if document_id is not None:
            sql, values = f"{sql} and document_id = ?", [*values, document_id]
        if types is None and document_id is None:
            sql += f" union all select seq from tokens where seq > ?{by_actor}"  # noqa: S608
            values += [after_seq, *of_actor]
        return [row[0] for row in self._rows(f"{sql} order by seq limit ?", [*values, limit])]

    def records_by(self, actor: str, since: str) -> list[int]:
        """Returns the seqs of an actor's records from that moment on that hold any event."""
        sql = "select distinct seq from events where seq > ? and actor = ? order by seq"
        return [row[0] for row in self._rows(sql, [self.seq_at(since, before=True), actor])]

    def records_of_questions(self, seqs: Sequence[int], default_kb: str) -> set[int]:
        """Returns the seqs of records that hold only questions, answers and what they began."""
        among, values = self._among("seq", seqs)
        is_asking, kinds = self._among("type", _asking_tags())
        sql = (
            f"select seq from events where {among} group by seq having "  # noqa: S608
            f"min({is_asking} or (type = 'kb.created' and kb = ?)) and max(session_id is not null)"
        )
        return {row[0] for row in self._rows(sql, [*values, *kinds, default_kb])}

    def unfinished_purges(self) -> list[int]:
        """Returns the seqs of records whose purge has not ended."""
        sql = f"select coalesce(max(seq), 0) from events where type = 'purge.ended' and {NO_WRITE}"  # noqa: S608
        return self.purges_after(self._rows(sql)[0][0])

    def purges_after(self, seq: int) -> list[int]:
        """Returns the seqs of records after `seq` that purge, ended or not."""
        sql = (
            "select distinct seq from events where type in ('doc.purged', 'content.forgotten', "  # noqa: S608
            f"'session.purged') and {NO_WRITE} and seq > ? order by seq"
        )
        return [row[0] for row in self._rows(sql, [seq])]

    def contents_before(self, ts: str) -> list[tuple[int, bool, list[int]]]:
        """Returns documents that were written before `ts`.

        Each has its id, whether it was deleted before `ts`, and its revisions written before `ts`.
        """
        sql = (
            "select d.id, coalesce(d.deleted_at < ?, 0), e.revision from documents d "
            "join events e on e.document_id = d.id and e.type = 'doc.written' "
            "where e.ts < ? and d.kb <> '' order by d.id, e.revision"
        )
        contents: dict[int, tuple[int, bool, list[int]]] = {}
        for id, is_deleted, revision in self._rows(sql, [ts, ts]):
            contents.setdefault(id, (id, bool(is_deleted), []))[2].append(revision)
        return list(contents.values())

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """Returns the newest record under this token."""
        rest = "tokens where token = ? and actor = ? and method = ? order by seq desc limit 1"
        rows = self._structs(TokenRow, "tokens", rest, [token, actor, method])
        return rows[0] if rows else None

    def written_under(self, actor: str, method: str, token: str) -> dict[int, int]:
        """Returns document id → revision, for documents that an unfinished command wrote."""
        sql = (
            "select d.id, d.revision from tokens t join events e on e.seq = t.seq join documents d "
            "on d.id = e.document_id and d.touched = t.seq "
            "where t.token = ? and t.actor = ? and t.method = ? and d.deleted_at is null"
        )
        return dict(self._rows(sql, [token, actor, method]))

    # ------------------------------------------------- what the indexes hold

    def touched_since(self, seq: int) -> dict[int, int]:
        """Returns the documents that were changed or deleted after `seq` → number of chunks."""
        sql = (
            "select document_id, case when deleted_at is null then coalesce(chunk_count, 0) else 0 "  # noqa: S608
            f"end from ({TOUCHED}) left join documents on id = document_id"
        )
        return dict(sorted(self._rows(sql, [seq])))

    def index_rows(self, document_ids: Iterable[int]) -> Iterator[IndexRow]:
        """Yields the chunks of these documents, by id."""
        remaining = iter(sorted(document_ids))
        while ids := list(islice(remaining, _PAGE)):
            among, values = self._among("document_id", ids)
            yield from self._index_rows(f"{among} order by +chunks.id", values)

    def first_index_rows(self, document_ids: Sequence[int]) -> list[IndexRow]:
        """Returns the first chunk of each of these documents, by id."""
        among, ids = self._among("document_id", document_ids)
        return self._index_rows(f"idx = 0 and {among} order by +chunks.id", ids)

    def all_index_rows(self) -> Iterator[IndexRow]:
        """Yields every live chunk by id."""
        last = 0
        while rows := self._index_rows(f"chunks.id > ? order by chunks.id limit {_PAGE}", [last]):
            yield from rows
            last = rows[-1].chunk_id

    def index_rows_of_chunks(self, ids: Sequence[int]) -> list[IndexRow]:
        among, values = self._among("chunks.id", ids)
        return self._index_rows(f"{among} order by +chunks.id", values)

    def _index_rows(self, condition: str, values: Sequence[Any]) -> list[IndexRow]:
        rows = self._chunks_in_documents("documents", condition, values)
        return [_index_row(chunk, document) for chunk, document in rows]


def _asking_tags() -> list[str]:
    """Returns the types of events by which a question is asked and answered."""
    from kbproc.engine.events import session as says  # few reads need it

    kinds = (
        *(says.SessionCreated, says.QuestionAsked, says.AnswerRestarted, says.AnswerReferred),
        *(says.AnswerSaid, says.AnswerWarned, says.AnswerEnded),
    )
    return [kind.tag() for kind in kinds]


def _total(column: str, table: str = "counts") -> str:
    return f"coalesce(sum({column}), 0) from seen.{table}"


def _may_match(row: TurnRow, beginnings: Sequence[str]) -> bool:
    """Returns False for a turn in ASCII without any of these beginnings of folded words."""
    text = f"{row.question} {row.text}"
    if not text.isascii():
        return True
    folded = text.replace("++", "pp").lower()
    return any(part in folded for part in beginnings)


def _answered(message: MessageRow, pieces: Iterable[PieceRow]) -> MessageRow:
    """Returns the message with the text and the references of its last attempt."""
    last_attempt = sorted(
        (piece for piece in pieces if piece.seq >= message.attempt_seq),
        key=lambda piece: (piece.seq, piece.idx),
    )
    references = [piece.said for piece in last_attempt if piece.kind == "references"]
    return msgspec.structs.replace(
        message,
        text="".join(piece.said or "" for piece in last_attempt if piece.kind == "delta"),
        references=references[-1] if references else None,
    )


def _cited_ids(piece: PieceRow) -> list[int]:
    """Returns the documents of references; 0 stands for a passage of another store."""
    references: list[dict[str, Any]] = msgspec.json.decode(piece.said or "[]")
    return [reference["document_id"] or 0 for reference in references]


def _visible_piece(piece: PieceRow, referred: set[int], visible: set[int]) -> PieceRow:
    """Returns the piece without hidden references, or a placeholder for a hidden piece."""
    if piece.kind == "references":
        references: list[dict[str, Any]] = msgspec.json.decode(piece.said or "[]")
        visible_references = [
            reference for reference in references if reference["document_id"] in visible
        ]
        return msgspec.structs.replace(piece, said=msgspec.json.encode(visible_references).decode())
    repeats = referred if piece.documents is None else piece.documents
    if piece.kind != "delta" or visible.issuperset(repeats):
        return piece
    return PieceRow(piece.seq, piece.idx, "replaced", "answer.said")


def _columns_of(kind: type[msgspec.Struct], first: int) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Returns a function that takes the columns of a chunk, followed by those of its document, and
    returns the members from the place `first` on.
    """
    chunks, documents = codec_of("chunks"), codec_of("documents")
    places = {name: len(chunks.columns) + place for name, place in documents.places.items()}
    places |= chunks.places
    return itemgetter(*[places[name] for name in kind.__struct_fields__[first:]])


_of_hit = _columns_of(HitRow, 1)
_of_index = _columns_of(IndexRow, 3)
_label_of = itemgetter(*[codec_of("documents").places[n] for n in ("kb", "type", "superseded_by")])


def _hit_row(chunk: list[Any], document: list[Any]) -> HitRow:
    return HitRow(chunk[0], *_of_hit(chunk + document))


def _index_row(chunk: list[Any], document: list[Any]) -> IndexRow:
    """Returns a chunk for the indexes."""
    label = label_of(*_label_of(document))
    return IndexRow(chunk[0], document[0], label, *_of_index(chunk + document))
