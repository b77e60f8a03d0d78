"""Queries the catalog: each method returns rows as far as the reader's Sight shows them.

Lists are passed as one array parameter, because a literal IN list of ten costs twenty times as
much as `unnest`. Pages are keyset pages: each starts after the last key of the page before.

A piece of an answer that may repeat a hidden document is shown as if that document were purged.
The records that the catalog has folded in are found by document, time, actor and token, without
reading the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from kbproc.base.hashes import sha256
from kbproc.engine.events import session as says
from kbproc.engine.events.entry import EntryFacts
from kbproc.engine.projections.catalog.filters import LABEL, DocumentFilter, SessionFilter
from kbproc.engine.projections.catalog.reader import EVERYTHING, NOTES, CatalogReader
from kbproc.engine.projections.catalog.rows import (
    AgentRow,
    ChainRow,
    ChunkRow,
    DocumentRow,
    EntryRow,
    EventRow,
    Head,
    Ids,
    IndexRow,
    KbRow,
    MessageRow,
    PieceRow,
    Roster,
    SessionRow,
    TokenRow,
    TurnRow,
    WatchRow,
    facts_in,
    note_of,
)
from kbproc.engine.projections.catalog.tables import types

_FEW = 32
_ASKING = [
    kind.tag()
    for kind in (
        *(says.SessionCreated, says.QuestionAsked, says.AnswerRestarted, says.AnswerReferred),
        *(says.AnswerSaid, says.AnswerWarned, says.AnswerEnded),
    )
]
_TURNS = (
    "with talk as (select m.id, m.session_id, s.title, s.agent, m.question, m.asked_at, "
    "m.asked_by, m.attempt_seq from messages m join seen.sessions s on s.id = m.session_id "
    "where m.withdrawn_at is null and {where}), "
    "answers as (select p.message_id, string_agg(p.said, '' order by p.seq, p.idx) as text "
    "from pieces p join talk on talk.id = p.message_id where p.kind = 'delta' "
    "and p.seq >= talk.attempt_seq group by p.message_id), "
    "turns as (select talk.*, coalesce(text, '') as text, lower(replace(concat(question, ' ', "
    "text), '++', 'pp')) as folded from talk left join answers on message_id = talk.id) "
    "select id, session_id, (select count(*) from messages m where m.session_id = "
    "turns.session_id and m.id <= turns.id), title, agent, question, text, asked_at, asked_by "
    "from turns where strlen(folded) <> length(folded) or "
    "list_bool_or(list_transform(?::varchar[], lambda part: contains(folded, part))) order by id"
)
_TURN_PIECES = (
    "select p.message_id, p.seq, p.idx, p.kind, p.said, p.documents from pieces p join messages m "
    "on m.id = p.message_id where m.id in (select unnest(?::bigint[])) and p.kind = 'delta' "
    "and p.seq >= m.attempt_seq order by p.seq, p.idx"
)
_MATCHING = (
    "select seq from (select seq, type, actor, document_id from events union all "
    "select seq, '', actor, null from tokens) where seq > ? "
    "and (?::varchar[] is null or list_contains(?::varchar[], type)) "
    "and (?::varchar is null or actor = ?) and (?::bigint is null or document_id = ?) "
    "order by seq limit ?"
)
_SELECTED = {
    "chunk_id": "c.id",
    "label": LABEL,
    "document": "case when c.idx = 0 and (d.revision = 1 or d.type = 'note') then d end",
}


def _select_index_rows() -> str:
    """Returns the SQL for the members of IndexRow up to `document`; see `_index_row`."""
    names = IndexRow.__struct_fields__
    columns = (
        _SELECTED.get(name) or f"{'c' if name in ChunkRow.__struct_fields__ else 'd'}.{name}"
        for name in names[: names.index("document") + 1]
    )
    tables = "chunks c join documents d on d.id = c.document_id"
    return f"select {', '.join(columns)} from {tables}"  # noqa: S608


_INDEX_ROWS = _select_index_rows()


class Queries(CatalogReader):
    """All reads of the catalog over one cursor; CatalogReader restricts the visible rows."""

    def seq(self) -> int:
        """Returns the seq of the state that is read, at half the cost of `head`."""
        seq: int = self._rows("select seq from head")[0][0]
        return seq

    def head(self) -> Head:
        return Head(*self._rows("select * exclude (version) from head")[0])

    def digest(self) -> str:
        """Returns a digest of every row of every table; equal catalogs have equal digests."""
        hash = sha256()
        for table in types():
            # Python sorts, because `order by all` would cost twice as much.
            for row in sorted(map(repr, self._cursor.execute(f"from {table}").fetchall())):
                hash.update(row.encode())
        return hash.hexdigest()

    # ------------------------------------------------------- knowledge bases

    def kbs(self, after: str = "", limit: int = 1_000_000) -> list[KbRow]:
        sql = "from seen.kbs where slug > ? order by slug limit ?"
        return [KbRow(*row) for row in self._rows(sql, [after, limit])]

    def kb(self, slug: str) -> KbRow | None:
        sql = "from seen.kbs where slug = ?"
        return next((KbRow(*row) for row in self._rows(sql, [slug])), None)

    def kb_slugs(self) -> list[str]:
        return [row[0] for row in self._rows("select slug from seen.kbs order by slug")]

    def kb_counts(self, kbs: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Returns slug → number of documents, number of chunks, bytes of the sources."""
        sql = (
            "select kb, count(*), sum(chunk_count), sum(size_bytes) from seen.documents "
            "where deleted_at is null and list_contains(?, kb) group by kb"
        )
        return {row[0]: (row[1], int(row[2]), int(row[3])) for row in self._rows(sql, [list(kbs)])}

    # ------------------------------------------------------------- documents

    def documents(
        self, filter: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        """Returns documents by id, from the one after `after`."""
        where, values = filter.where()
        condition = f"id > ? and {where} order by id limit ?"
        return self._documents(DocumentRow, condition, [after, *values, limit])

    def document(self, id: int) -> DocumentRow | None:
        """Returns a document, even if it is deleted; see `deleted_at`."""
        return next(iter(self._documents(DocumentRow, "id = ?", [id])), None)

    def documents_by_id(self, ids: Iterable[int]) -> dict[int, DocumentRow]:
        """Returns documents by id, deleted ones included."""
        id_list = list(ids)
        condition = _among("id", id_list)
        return {row.id: row for row in self._documents(DocumentRow, condition, [id_list])}

    def count(self, filter: DocumentFilter) -> int:
        where, values = filter.where()
        return int(self._rows(f"select count(*) from seen.documents where {where}", values)[0][0])  # noqa: S608

    def states_trust(self, filter: DocumentFilter) -> bool:
        """Returns whether any of these documents has an origin or a review that an export of an
        earlier version can't state; see events.origin.origin_in_export.
        """
        where, values = filter.where()
        sql = (
            f"select 1 from seen.documents where {where} and (verified_at is not null or "  # noqa: S608
            "review_after is not null or len(derived_from) > 0 or origin <> case when url is not "
            "null then 'web' when created_by = 'user' and type <> 'note' then 'user' "
            "else 'agent' end) limit 1"
        )
        return bool(self._rows(sql, values))

    def document_ids(self, filter: DocumentFilter) -> Ids:
        """Returns the sorted ids of documents."""
        import numpy as np

        where, values = filter.where()
        sql = f"select id from seen.documents where {where} order by id"  # noqa: S608
        ids = self._cursor.execute(self._sql(sql), values).fetchnumpy()["id"]
        return np.asarray(ids, dtype=np.int64)

    def by_type(self) -> dict[str, int]:
        sql = "select type, count(*) from seen.documents where deleted_at is null group by type"
        return dict(sorted((row[0], row[1]) for row in self._rows(sql)))

    def source_bytes(self) -> int:
        sql = "select coalesce(sum(size_bytes), 0) from seen.documents where deleted_at is null"
        return int(self._rows(sql)[0][0])

    def tags(
        self, kbs: Sequence[str] | None, after: str, limit: int, *, by_count: bool = False
    ) -> list[tuple[str, int, str]]:
        """Returns tags, each with its count and its sort key; `after` is such a key."""
        key = "lpad((1000000000 - count(*))::varchar, 10, '0') || ' ' || tag" if by_count else "tag"
        sql = (
            f"select tag, count(*), {key} as place from (select unnest(tags) as tag "  # noqa: S608
            "from seen.documents where deleted_at is null "
            "and (?::varchar[] is null or list_contains(?::varchar[], kb))) "
            "group by tag having place > ? order by place limit ?"
        )
        kb_list = None if kbs is None else list(kbs)
        return [
            (row[0], row[1], row[2]) for row in self._rows(sql, [kb_list, kb_list, after, limit])
        ]

    def paths(self, kb: str) -> dict[str, DocumentRow]:
        """Returns path → document, for the live documents of a knowledge base made from files."""
        condition = "kb = ? and path is not null and deleted_at is null"
        return {str(row.path): row for row in self._documents(DocumentRow, condition, [kb])}

    def documents_at(self, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """Returns path → document, for the live documents made from these files."""
        condition = "kb = ? and deleted_at is null and path in (select unnest(?::varchar[]))"
        rows = self._documents(DocumentRow, condition, [kb, list(paths)])
        return {str(row.path): row for row in rows}

    def pruned(self, kb: str) -> list[DocumentRow]:
        """Returns the documents that an ingest removed because their files were gone, by id."""
        condition = (
            "kb = ? and path is not null and deleted_at is not null and (id, touched) in "
            "(select (document_id, seq) from events where type = 'doc.deleted' "
            "and method = 'doc.ingest') order by id"
        )
        return self._documents(DocumentRow, condition, [kb])

    def with_unread(self, kb: str) -> list[DocumentRow]:
        """Returns the live documents whose texts lack parts of their sources, by id."""
        condition = (
            "kb = ? and deleted_at is null and contains(source_facts, '\"unread\":{') order by id"
        )
        return self._documents(DocumentRow, condition, [kb])

    def failures(self, kb: str) -> dict[str, tuple[str, str, str | None]]:
        """Returns path → error type, message, sha256 of the bytes that failed."""
        sql = "select path, error, message, sha256 from failures where kb = ? order by path"
        return {row[0]: (row[1], row[2], row[3]) for row in self._rows(sql, [kb])}

    # ---------------------------------------------------------------- chunks

    def chunk_total(self) -> int:
        return int(self._rows("select count(*) from seen.chunks")[0][0])

    def chunks_of(self, document_id: int, after: int = 0, limit: int = 1_000_000) -> list[ChunkRow]:
        """Returns a document's chunks in order, from the one after chunk id `after`."""
        sql = "from seen.chunks where document_id = ? and id > ? order by id limit ?"
        return [ChunkRow(*row) for row in self._rows(sql, [document_id, after, limit])]

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        sql = (
            "select c.* from (select unnest(?::bigint[]) as requested_id) "
            "join seen.chunks c on c.id = requested_id"
        )
        return {row[0]: ChunkRow(*row) for row in self._rows(sql, [list(ids)])}

    def chunk_counts(self, after_seq: int = 0) -> dict[int, int]:
        """Returns document id → number of chunks, for live documents that have any.

        `after_seq`: only documents that changed after this position.
        """
        sql = (
            "select id, chunk_count from seen.documents where deleted_at is null "
            "and chunk_count > 0 and touched > ?"
        )
        return dict(self._rows(sql, [after_seq]))

    # --------------------------------------------------------------- entries

    def entry(self, id: int) -> EntryRow | None:
        """Returns an entry, even if it is deleted; see `deleted_at`."""
        condition = "id = ? and type = 'knowledge'"
        return next(iter(self._documents(EntryRow, condition, [id])), None)

    def entries(
        self, filter: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[EntryRow]:
        """Returns entries by id, from the one after `after`."""
        where, values = filter.where()
        condition = f"id > ? and type = 'knowledge' and {where} order by id limit ?"
        return self._documents(EntryRow, condition, [after, *values, limit])

    def entries_by_id(self, ids: Sequence[int]) -> dict[int, EntryRow]:
        """Returns entries by id, deleted ones included."""
        condition = "type = 'knowledge' and id in (select unnest(?::bigint[]))"
        return {row.id: row for row in self._documents(EntryRow, condition, [list(ids)])}

    def entry_facts(self, id: int) -> EntryFacts | None:
        """Returns an entry's facts; None if the document isn't an entry."""
        row = self.entry(id)
        return None if row is None else facts_in(asdict(row))

    def superseded_by(self, ids: Sequence[int]) -> list[EntryRow]:
        """Returns the live entries whose direct successor is one of these, by id."""
        condition = (
            "deleted_at is null and superseded_by in (select unnest(?::bigint[])) order by id"
        )
        return self._documents(EntryRow, condition, [list(ids)])

    def successors(self, head: int) -> dict[int, int]:
        """Returns each superseded entry behind this head → its direct successor."""
        sql = "select id, superseded_by from documents where head = ? and superseded_by is not null"
        return dict(self._rows(sql, [head]))

    def chains(self, ids: Sequence[int]) -> dict[int, ChainRow]:
        """Returns these entries and all that are linked with them, over any number of steps.

        Deleted entries are included, purged ones are not.
        """
        sql = (
            "select id, superseded_by, deleted_at is null from documents where head in "
            "(select head from documents where id in (select unnest(?::bigint[])))"
        )
        return {row[0]: ChainRow(*row) for row in self._rows(sql, [list(ids)])}

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
        sql = "from agents where slug > ? and deleted_at is null order by slug limit ?"
        return [AgentRow(*row) for row in self._rows(sql, [after, limit])]

    def agent(self, slug: str) -> AgentRow | None:
        """Returns an agent, even if it is deleted."""
        sql = "from agents where slug = ?"
        return next((AgentRow(*row) for row in self._rows(sql, [slug])), None)

    def roster(self) -> Roster:
        agents = self._rows("from agents order by slug")
        kbs = self._rows(
            "select kb, list(distinct superseded_by) filter (deleted_at is null and superseded_by "
            "is not null) from documents where type = 'knowledge' group by kb order by kb"
        )
        expiring = self._rows(
            "select expires_at, id from documents where expires_at is not null "
            "and deleted_at is null order by 1, 2"
        )
        return Roster(
            agents={row[0]: AgentRow(*row) for row in agents},
            kbs=tuple(slug for (slug,) in self._rows("select slug from kbs order by slug")),
            entries=tuple(kb for kb, _ in kbs),
            superseded=tuple(kb for kb, successors in kbs if successors),
            successors=frozenset(id for _, successors in kbs for id in successors or ()),
            moments=[moment for moment, _ in expiring],
            expiring=[id for _, id in expiring],
            watches=self.watches(),
        )

    def watches(self) -> list[WatchRow]:
        """Returns the watched folders by path, then by machine."""
        return [WatchRow(*row) for row in self._rows("from watches order by path, machine")]

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
        # Two queries, because one with a subquery for each row takes four times as long to plan.
        rows = self._rows(f"from seen.sessions s where {condition}", values)
        if not rows:
            return []
        ids = [row[0] for row in rows]
        sql = (
            "select session_id, count(*) from messages where withdrawn_at is null "  # noqa: S608
            f"and {_among('session_id', ids)} group by session_id"
        )
        counts = dict(self._rows(sql, [ids]))
        return [SessionRow(*(*row, counts.get(row[0], 0))) for row in rows]

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
        rows = self._rows(f"from messages where {condition}", values)
        messages = [MessageRow(*(*row, "", None)) for row in rows]
        if not messages:
            return []
        if self.sight != EVERYTHING:
            return [self._as_visible(message) for message in messages]
        ids = [message.id for message in messages]
        sql = (
            f"select message_id, seq, idx, kind, said from pieces where {_among('message_id', ids)}"  # noqa: S608
        )
        pieces: dict[int, list[PieceRow]] = {id: [] for id in ids}
        for id, *piece in self._rows(sql, [ids]):
            pieces[id].append(PieceRow(*piece))
        return [_answered(message, pieces[message.id]) for message in messages]

    def turns(self, filter: SessionFilter, beginnings: Sequence[str]) -> list[TurnRow]:
        """Returns the turns of live sessions by id, each with its text as far as it is visible.

        Leaves out turns in ASCII without any of these beginnings of folded words.
        """
        where, values = filter.where()
        sql = _TURNS.format(where=where)
        rows = [TurnRow(*row) for row in self._rows(sql, [*values, list(beginnings)])]
        return rows if self.sight == EVERYTHING else self._visible_turns(rows)

    def _visible_turns(self, rows: Sequence[TurnRow]) -> list[TurnRow]:
        """Returns turns without the pieces that may repeat hidden documents; see `shown`."""
        ids = [row.id for row in rows]
        referred = self._referred_in_turns(ids)
        pieces: dict[int, list[PieceRow]] = {id: [] for id in ids}
        for message, *piece in self._rows(_TURN_PIECES, [ids]):
            pieces[message].append(PieceRow(*piece))
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
        sql = (
            "select m.session_id, m.id, p.said from messages m left join pieces p on "
            "p.message_id = m.id and p.kind = 'references' where m.session_id in (select "
            "session_id from messages where id in (select unnest(?::bigint[]))) order by m.id"
        )
        by_session: dict[int, set[int]] = {}
        by_message: dict[int, set[int]] = {}
        for session, message, references in self._rows(sql, [list(messages)]):
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
        sql = (
            "select seq, idx, kind, said, documents from pieces where message_id = ? and "
            "(seq > ? or (seq = ? and idx > ?)) order by seq, idx limit ?"
        )
        values = [message, after[0], after[0], after[1], limit]
        return self.shown(message, [PieceRow(*row) for row in self._rows(sql, values)])

    def shown(self, message: int, pieces: Sequence[PieceRow]) -> list[PieceRow]:
        """Returns pieces as the caller may see them; the catalog need not hold them yet."""
        if self.sight == EVERYTHING:
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
        condition = "id in (select unnest(?::bigint[]))"
        if not self.sight.texts:  # entries and notes have scopes of their own
            condition += f" and (type = 'knowledge' or starts_with(kb, '{NOTES}'))"
        rows = self._rows(f"select id from seen.documents where {condition}", [list(ids)])  # noqa: S608
        return {int(id) for (id,) in rows}

    def being_answered(self) -> list[tuple[int, int]]:
        """Returns session and message of each answer that has not ended."""
        sql = "select session_id, id from messages where status is null order by id"
        return self._rows(sql)

    # ---------------------------------------------------- records and tokens

    def seq_at(self, ts: str, *, before: bool = False) -> int:
        """Returns the last seq at that moment, or the last `before` it; 0 without any."""
        sql = f"select coalesce(max(seq), 0) from events where ts {'<' if before else '<='} ?"  # noqa: S608
        return int(self._rows(sql, [ts])[0][0])

    def ts_of(self, seq: int) -> str:
        """Returns the time of the last record up to `seq`; "" before the first."""
        rows = self._rows("select coalesce(max(ts), '') from events where seq <= ?", [seq])
        return str(rows[0][0])

    def events_of_document(self, id: int, after_seq: int = 0) -> list[EventRow]:
        """Returns a document's events in order, including its purge."""
        sql = "from events where document_id = ? and seq > ? order by seq, idx"
        return [EventRow(*row) for row in self._rows(sql, [id, after_seq])]

    def events_of_records(self, seqs: Sequence[int]) -> list[EventRow]:
        sql = "from events where seq in (select unnest(?::bigint[])) order by seq, idx"
        return [EventRow(*row) for row in self._rows(sql, [list(seqs)])]

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
        type_list = None if types is None else list(types)
        values = [after_seq, type_list, type_list, actor, actor, document_id, document_id, limit]
        return [row[0] for row in self._rows(_MATCHING, values)]

    def records_by(self, actor: str, since: str) -> list[int]:
        """Returns the seqs of an actor's records from that moment on that hold any event."""
        sql = "select distinct seq from events where actor = ? and ts >= ? order by seq"
        return [row[0] for row in self._rows(sql, [actor, since])]

    def records_of_questions(self, seqs: Sequence[int], default_kb: str) -> set[int]:
        """Returns the seqs of records that hold only questions, answers and what they began."""
        sql = (
            "select seq from events where seq in (select unnest(?::bigint[])) group by seq having "
            "bool_and(type in (select unnest(?)) or (type = 'kb.created' and kb = ?)) "
            "and bool_or(session_id is not null)"
        )
        return {row[0] for row in self._rows(sql, [list(seqs), _ASKING, default_kb])}

    def unfinished_purges(self) -> list[int]:
        """Returns the seqs of records whose purge has not ended."""
        sql = "select coalesce(max(seq), 0) from events where type = 'purge.ended'"
        return self.purges_after(self._rows(sql)[0][0])

    def purges_after(self, seq: int) -> list[int]:
        """Returns the seqs of records after `seq` that purge, ended or not."""
        sql = (
            "select distinct seq from events where type in ('doc.purged', 'content.forgotten', "
            "'session.purged') and seq > ? order by seq"
        )
        return [row[0] for row in self._rows(sql, [seq])]

    def contents_before(self, ts: str) -> list[tuple[int, bool, list[int]]]:
        """Returns documents that were written before `ts`.

        Each has its id, whether it was deleted before `ts`, and its revisions written before `ts`.
        """
        sql = (
            "select d.id, coalesce(d.deleted_at < ?, false), list(e.revision order by e.revision) "
            "from documents d join events e on e.document_id = d.id and e.type = 'doc.written' "
            "where e.ts < ? and d.kb <> '' group by all"
        )
        return self._rows(sql, [ts, ts])

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """Returns the newest record under this token."""
        sql = (
            "select params_hash, salt, seq, result from tokens where token = ? and actor = ? "
            "and method = ?"
        )
        # Python picks the newest, because with `order by` DuckDB reads all tokens.
        rows = [TokenRow(*row) for row in self._rows(sql, [token, actor, method])]
        return max(rows, key=lambda row: row.seq, default=None)

    def written_under(self, actor: str, method: str, token: str) -> dict[int, int]:
        """Returns document id → revision, for documents that an unfinished command wrote."""
        sql = (
            "select d.id, d.revision from documents d join tokens t on t.seq = d.touched "
            "where t.token = ? and t.actor = ? and t.method = ? and d.deleted_at is null"
        )
        return dict(self._rows(sql, [token, actor, method]))

    # ------------------------------------------------- what the indexes hold

    def touched_since(self, seq: int) -> list[int]:
        """Returns the documents that were changed or deleted after `seq`, by id."""
        sql = "select id from documents where touched > ? order by id"
        return [row[0] for row in self._rows(sql, [seq])]

    def index_rows(self, document_ids: Sequence[int]) -> list[IndexRow]:
        sql = _INDEX_ROWS + " where c.document_id in (select unnest(?::bigint[])) order by c.id"
        return [_index_row(row) for row in self._rows(sql, [list(document_ids)])]

    def first_index_rows(self, document_ids: Sequence[int]) -> list[IndexRow]:
        """Returns the first chunk of each of these documents, by id."""
        sql = (
            _INDEX_ROWS
            + " where c.idx = 0 and c.document_id in (select unnest(?::bigint[])) order by c.id"
        )
        return [_index_row(row) for row in self._rows(sql, [list(document_ids)])]

    def all_index_rows(self, batch: int = 2000) -> Iterable[IndexRow]:
        """Streams every live chunk by id."""
        result = self._cursor.execute(_INDEX_ROWS + " order by c.id")
        while rows := result.fetchmany(batch):
            yield from (_index_row(row) for row in rows)

    def index_rows_of_chunks(self, ids: Sequence[int]) -> list[IndexRow]:
        sql = (
            _INDEX_ROWS
            + " join (select unnest(?::bigint[]) as requested_id) on c.id = requested_id "
            + "order by c.id"
        )
        return [_index_row(row) for row in self._rows(sql, [list(ids)])]


def _among(column: str, ids: Sequence[int]) -> str:
    """Returns the SQL condition that `column` is one of `ids`; the ids are its only parameter.

    A short list is scanned, because that is three times as fast as a join.
    """
    is_short = len(ids) <= _FEW
    return (
        f"list_contains(?::bigint[], {column})"
        if is_short
        else f"{column} in (select unnest(?::bigint[]))"
    )


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


def _index_row(columns: Sequence[Any]) -> IndexRow:
    *chunk_columns, document_columns = columns
    if document_columns is None:
        return IndexRow(*chunk_columns)
    document = DocumentRow(*map(document_columns.get, DocumentRow.__struct_fields__))
    facts = facts_in(document_columns) if document.type == "knowledge" else None
    new = document if document.revision == 1 else None
    return IndexRow(*[*chunk_columns, new, facts, note_of(document)])
