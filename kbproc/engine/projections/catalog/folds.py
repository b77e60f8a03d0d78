"""Folds every event into the catalog's tables.

FOLDS has a line for every event. `fold` also writes the tables events, tokens and head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec
from msgspec.structs import asdict, astuple

from kbproc.engine.events import codec
from kbproc.engine.events import session as says
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.document import (
    ChunkDeleted,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.entry import EntryFacts, EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.plan import PlanApproved
from kbproc.engine.events.upkeep import (
    ContentForgotten,
    DocPurged,
    Erased,
    LogRepaired,
    ModelUsed,
    PurgeEnded,
)
from kbproc.engine.events.watch import FolderUnwatched, FolderWatched
from kbproc.engine.log.record import Record
from kbproc.engine.projections.catalog.batch import ChangeBatch, Row, Tables, columns_of
from kbproc.engine.projections.catalog.rows import (
    DocumentRow,
    chunk_columns,
    document_row,
    token_row,
    watch_row,
)
from kbproc.engine.projections.catalog.tables import types

# -------------------------------------------------------------------- documents

_COLUMNS = tuple(types()["documents"])
_ENTRY_COLUMNS = _COLUMNS[len(DocumentRow.__struct_fields__) :]
_REVIEW = ("verified_by", "verified_at", "review_after")
_RETAINED = ("created_at", "created_by", "superseded_by", "head", *_REVIEW)
_CHANGED_COLUMNS = ("title", "tags", "metadata", "revision", "updated_at", "touched", "updated_by")


class PendingDocuments:
    """The latest pending state of documents, their chunks, and failures of files."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._chunks: dict[int, list[Row]] = {}
        self._replaced: list[int] = []
        self._changed: dict[int, Row] = {}
        self._origins: dict[int, Row] = {}
        self._deleted: dict[int, Row] = {}
        self._failures: dict[tuple[str, str], Row | None] = {}

    def __len__(self) -> int:
        return len(self._rows) + len(self._changed) + len(self._deleted) + len(self._failures)

    def write(self, row: Row, chunks: list[Row], *, replaces: bool) -> None:
        id = row[0]
        if (pending_row := self._rows.get(id)) is not None:
            columns = _by_column(pending_row)
            row = _with_retained(row, tuple(columns[name] for name in _RETAINED))
        elif replaces:
            self._replaced.append(id)
        self._rows[id], self._chunks[id] = row, chunks
        self._changed.pop(id, None)
        self._origins.pop(id, None)
        self._deleted.pop(id, None)

    def change(self, id: int, values: Row, origin: str | None) -> None:
        """Changes a document. `values`: those of _CHANGED_COLUMNS; `origin`: None if it stays."""
        if (row := self._rows.get(id)) is not None:
            columns = [*zip(_CHANGED_COLUMNS, values, strict=True)]
            columns += [("origin", origin)] if origin is not None else []
            self._rows[id] = _replace_values(row, columns)
            return
        self._changed[id] = (id, *values)
        if origin is not None:
            self._origins[id] = (id, origin)

    def hide(self, id: int, at: str, seq: int) -> None:
        if (row := self._rows.get(id)) is not None:
            hidden = {"chunk_count": 0, "deleted_at": at, "touched": seq}
            self._rows[id] = _replace_values(row, hidden.items())
            self._chunks[id] = []
        else:
            self._deleted[id] = (id, at, seq, 0)

    def is_hidden(self, id: int) -> bool:
        return id in self._deleted

    def fail(self, kb: str, path: str, row: Row | None) -> None:
        """Sets a file's failure; None removes it, because the file is gone or readable now."""
        self._failures[kb, path] = row

    def flush(self, db: Tables) -> None:
        retained = _retained_values(db, self._replaced)
        if self._replaced:
            _remove(db, self._replaced)
        rows = self._rows.items()
        db.insert(
            "documents",
            [_with_retained(row, retained[id]) if id in retained else row for id, row in rows],
        )
        db.insert("chunks", [chunk for chunks in self._chunks.values() for chunk in chunks])
        db.update("documents", _CHANGED_COLUMNS, self._changed.values())
        db.update("documents", ("origin",), self._origins.values())
        db.update("documents", ("deleted_at", "touched", "chunk_count"), self._deleted.values())
        if self._deleted:
            db.execute(_DROP_CHUNKS, [list(self._deleted)])
        if self._failures:
            db.execute(_CLEAR, columns_of(self._failures))
            db.insert("failures", [row for row in self._failures.values() if row])
        self.__init__()  # type: ignore[misc]


_DROP_CHUNKS = "delete from chunks where document_id in (select unnest(?::bigint[]))"
_CLEAR = (
    "delete from failures where (kb, path) in (select (unnest(?::varchar[]), unnest(?::varchar[])))"
)


def _retained_values(db: Tables, ids: list[int]) -> dict[int, Row]:
    """Returns the values that documents keep when they are replaced, by id."""
    if not ids:
        return {}
    condition = "where id in (select unnest(?::bigint[]))"
    sql = f"select id, {', '.join(_RETAINED)} from documents {condition}"  # noqa: S608
    return {row[0]: row[1:] for row in db.execute(sql, [ids]).fetchall()}


def _with_retained(row: Row, values: Row) -> Row:
    """Returns the row of a replaced document, with the retained values of the old one."""
    columns = dict(zip(_RETAINED, values, strict=True))
    if columns["head"] is None:
        del columns["head"]
    return _replace_values(row, columns.items())


def _by_column(row: Row) -> dict[str, Any]:
    return dict(zip(_COLUMNS, row, strict=True))


def _replace_values(row: Row, columns: Iterable[tuple[str, Any]]) -> Row:
    """Returns the row with new values in these columns."""
    return tuple({**_by_column(row), **dict(columns)}.values())


def _remove(db: Tables, ids: list[int]) -> None:
    """Deletes the rows of documents and of their chunks."""
    db.execute("delete from documents where id in (select unnest(?::bigint[]))", [ids])
    db.execute(_DROP_CHUNKS, [ids])


def document_written(batch: ChangeBatch, record: Record, event: DocWritten) -> None:
    """Writes a document. A replaced one keeps its creation time, creator and links."""
    replaces = event.revision > 1
    documents = batch.gather(PendingDocuments, after=None if replaces else ())
    row = _row(document_row(record, event), event.entry)
    documents.write(row, _chunks(event), replaces=replaces)
    batch.roster_changed = batch.roster_changed or event.entry is not None


def _row(document: DocumentRow, facts: EntryFacts | None = None) -> Row:
    """Returns the columns of a document's row; those of an entry are the last."""
    entry = {} if facts is None else {**asdict(facts), "head": document.id}
    return (*astuple(document), *map(entry.get, _ENTRY_COLUMNS))


def _chunks(event: DocWritten) -> list[Row]:
    return [
        (event.first_chunk + index, event.id, index, *chunk_columns(chunk))
        for index, chunk in enumerate(event.chunks)
    ]


def document_changed(batch: ChangeBatch, record: Record, event: DocChanged) -> None:
    metadata = msgspec.json.encode(event.metadata).decode()
    values = (
        event.title,
        event.tags,
        metadata,
        event.revision,
        record.ts,
        record.seq,
        record.actor,
    )
    documents = batch.gather(PendingDocuments)
    if documents.is_hidden(event.id):
        batch.flush()
    documents.change(event.id, values, event.origin)


def document_deleted(batch: ChangeBatch, record: Record, event: DocDeleted) -> None:
    batch.gather(PendingDocuments).hide(event.id, record.ts, record.seq)


def chunks_deleted(batch: ChangeBatch, record: Record, event: ChunkDeleted) -> None:
    db = batch.settled()
    db.execute("delete from chunks where id in (select unnest(?::bigint[]))", [event.ids])
    db.execute(
        "update documents set revision = ?, updated_at = ?, updated_by = ?, touched = ?, "
        "chunk_count = (select count(*) from chunks where document_id = documents.id) where id = ?",
        [event.revision, record.ts, record.actor, record.seq, event.document_id],
    )


def documents_purged(batch: ChangeBatch, record: Record, event: DocPurged) -> None:
    """Empties the rows of documents; the same rows remain if the log no longer has them."""
    _remove(batch.settled(), event.ids)
    documents = batch.gather(PendingDocuments)
    for id in event.ids:
        row = DocumentRow(
            id=id,
            kb="",
            title="",
            type="",
            path=None,
            url=None,
            source_id=None,
            tags=[],
            metadata="{}",
            revision=0,
            chunk_count=0,
            size_bytes=0,
            sha256="",
            parser=0,
            pages=None,
            created_at="",
            updated_at=record.ts,
            created_by="",
            deleted_at=record.ts,
            touched=record.seq,
            updated_by="",
            origin="import",
        )
        documents.write(_row(row), [], replaces=False)


def file_failed(batch: ChangeBatch, record: Record, event: FileFailed) -> None:
    row = (event.kb, event.path, event.error, event.message, event.sha256, record.ts)
    batch.gather(PendingDocuments, after=()).fail(event.kb, event.path, row)


def file_cleared(batch: ChangeBatch, record: Record, event: FileCleared) -> None:
    batch.gather(PendingDocuments, after=()).fail(event.kb, event.path, None)


# ---------------------------------------------------------------------- entries
# An entry is its own head until another entry supersedes it. Then the head of its successor becomes
# the head of the entry and of all entries behind it, so `head` is the last entry of every chain.


class PendingLinks:
    """Pending links in order: an entry, its successor, the record's seq.

    They are written together, because each takes 3 ms alone among ten thousand entries.
    """

    def __init__(self) -> None:
        self._links: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._links)

    def add(self, id: int, by: int, seq: int) -> None:
        self._links.append((id, by, seq))

    def flush(self, db: Tables) -> None:
        """Writes the links. A purged successor has no row; its id then serves as the head."""
        successor_heads = db.execute(
            "select id, head from documents where head is not null and "
            "id in (select unnest(?::bigint[]))",
            [[by for _, by, _ in self._links]],
        ).fetchall()
        head_of: dict[int, int] = dict(successor_heads)
        new_heads: dict[int, int] = {}
        for id, by, _ in self._links:
            new_heads[id] = _end(new_heads, head_of.get(by, by))
        db.execute(
            "update documents set head = moved.head from (select unnest(?::bigint[]) as old, "
            "unnest(?::bigint[]) as head) as moved where documents.head = moved.old",
            [list(new_heads), [_end(new_heads, id) for id in new_heads]],
        )
        latest_links = {link[0]: link for link in self._links}
        db.update("documents", ("superseded_by", "touched"), latest_links.values())
        self._links.clear()


def _end(new_heads: dict[int, int], head: int) -> int:
    """Returns the current end of a chain that once ended at `head`.

    Shortens the path in `new_heads` for later calls.
    """
    passed = []
    while head in new_heads and new_heads[head] != head:
        passed.append(head)
        head = new_heads[head]
    for id in passed:
        new_heads[id] = head
    return head


class PendingRevivals:
    """Pending revivals: each entry that is current again → the record's seq."""

    def __init__(self) -> None:
        self._seqs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._seqs)

    def add(self, ids: list[int], seq: int) -> None:
        self._seqs.update(dict.fromkeys(ids, seq))

    def flush(self, db: Tables) -> None:
        db.update("documents", ("head",), _heads(db, list(self._seqs)).items())
        rows = [(id, None, seq) for id, seq in self._seqs.items()]
        db.update("documents", ("superseded_by", "touched"), rows)
        self._seqs.clear()


def _heads(db: Tables, ids: list[int]) -> dict[int, int]:
    """Returns the new head of each entry: itself for those in `ids`, which also become the heads
    of the entries behind them, up to the next one in `ids`.
    """
    sql = (
        "select id, superseded_by from documents where superseded_by is not null and head in "
        "(select head from documents where id in (select unnest(?::bigint[])))"
    )
    predecessors: dict[int, list[int]] = defaultdict(list)
    revived = set(ids)
    for id, successor in db.execute(sql, [ids]).fetchall():
        if id not in revived:
            predecessors[successor].append(id)
    heads: dict[int, int] = {}
    for head in ids:
        stack = [head]
        while stack:
            id = stack.pop()
            heads[id] = head
            stack += predecessors.get(id, [])
    return heads


def entry_superseded(batch: ChangeBatch, record: Record, event: EntrySuperseded) -> None:
    """Links an entry to its successor. New entries may stay pending: they are inserted first."""
    batch.gather(PendingLinks, after=(PendingRevivals, PendingReviews)).add(
        event.id, event.by, record.seq
    )
    batch.roster_changed = True


def entries_revived(batch: ChangeBatch, record: Record, event: EntryRevived) -> None:
    batch.gather(PendingRevivals, after=(PendingLinks, PendingReviews)).add(event.ids, record.seq)
    batch.roster_changed = True


class PendingReviews:
    """The latest review of each entry, with the record's seq, so that its index rows change."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        self._rows[row[0]] = row

    def flush(self, db: Tables) -> None:
        db.update("documents", (*_REVIEW, "touched"), self._rows.values())
        self._rows.clear()


def entry_reviewed(batch: ChangeBatch, record: Record, event: EntryReviewed) -> None:
    row = (event.id, event.verified_by, event.verified_at, event.review_after, record.seq)
    batch.gather(PendingReviews).add(row)


# ------------------------------------------------------ knowledge bases, agents


def kb_created(batch: ChangeBatch, record: Record, event: KbCreated) -> None:
    batch.add("kbs", (event.slug, event.name, event.description, 1, record.ts, record.ts))
    batch.roster_changed = True


def kb_updated(batch: ChangeBatch, record: Record, event: KbUpdated) -> None:
    batch.settled().execute(
        "update kbs set name = ?, description = ?, revision = revision + 1, updated_at = ? "
        "where slug = ?",
        [event.name, event.description, record.ts, event.slug],
    )


def kb_deleted(batch: ChangeBatch, record: Record, event: KbDeleted) -> None:
    db = batch.settled()
    db.execute("delete from kbs where slug = ?", [event.slug])
    db.execute("delete from failures where kb = ?", [event.slug])
    batch.roster_changed = True


def agent_written(batch: ChangeBatch, record: Record, event: AgentWritten) -> None:
    """Replaces an agent's row. Its creation time stays, unless the agent was deleted before."""
    db = batch.settled()
    row = db.execute(
        "select created_at from agents where slug = ? and deleted_at is null", [event.slug]
    ).fetchone()
    db.execute("delete from agents where slug = ?", [event.slug])
    quotas = msgspec.json.encode(event.quotas, order="sorted").decode()
    settings = (event.kbs, event.folder, event.scopes, quotas, event.instructions)
    times = (row[0] if row else record.ts, record.ts, None)
    db.insert("agents", [(event.slug, event.description, *settings, event.revision, *times)])
    batch.roster_changed = True


def agent_deleted(batch: ChangeBatch, record: Record, event: AgentDeleted) -> None:
    """Marks an agent as deleted. The row stays: a name that never was an agent has all rights."""
    sql = "update agents set deleted_at = ? where slug = ?"
    batch.settled().execute(sql, [record.ts, event.slug])
    batch.roster_changed = True


# -------------------------------------------------------------- watched folders

_DROP_WATCH = "delete from watches where machine = ? and path = ?"


def folder_watched(batch: ChangeBatch, record: Record, event: FolderWatched) -> None:
    db = batch.settled()
    db.execute(_DROP_WATCH, [event.machine, event.path])
    row = watch_row(event, added_at=record.ts, added_by=record.actor)
    db.insert("watches", [astuple(row)])
    batch.roster_changed = True


def folder_unwatched(batch: ChangeBatch, record: Record, event: FolderUnwatched) -> None:
    batch.settled().execute(_DROP_WATCH, [event.machine, event.path])
    batch.roster_changed = True


# --------------------------------------------------------------------- sessions

_RESTART = "update messages set status = null, ending = null, ended_at = null, attempt_seq = ? "
_SESSION_PIECES = "message_id in (select id from messages where session_id = ?)"
_PURGE_CONDITIONS = {"pieces": _SESSION_PIECES, "messages": "session_id = ?", "sessions": "id = ?"}


class PendingSessions:
    """New sessions, new questions and endings of answers.

    They are written together, because one at a time a hundred questions hold up other writers.
    """

    def __init__(self) -> None:
        self.sessions: list[Row] = []
        self.messages: list[Row] = []
        self.updated: dict[int, str] = {}  # session → time
        self.ended: dict[int, Row] = {}  # message → id, status, ending, time

    def __len__(self) -> int:
        return len(self.sessions) + len(self.messages) + len(self.ended)

    def flush(self, db: Tables) -> None:
        db.insert("sessions", self.sessions)
        db.insert("messages", self.messages)
        db.update("sessions", ("updated_at",), self.updated.items())
        db.update("messages", ("status", "ending", "ended_at"), self.ended.values())
        for rows in (self.sessions, self.messages, self.updated, self.ended):
            rows.clear()


def session_event(batch: ChangeBatch, record: Record, event: says.OfSession) -> None:
    if isinstance(event, says.OfMessage) and event.piece is not None:
        piece = (event.message, record.seq, batch.index, *event.piece, event.repeats)
        batch.add("pieces", piece)
    match event:
        case says.AnswerRestarted():
            sql = f"{_RESTART} where id = ?"
            batch.settled().execute(sql, [record.seq, event.message])
        case says.AnswerEnded():
            ending = msgspec.json.encode(event).decode()
            ending_row = (event.message, event.status, ending, event.ended_at or record.ts)
            batch.gather(PendingSessions, after=()).ended[event.message] = ending_row
        case says.QuestionAsked():
            _add_question(batch, record, event)
        case says.QuestionWithdrawn() | says.QuestionRestored():
            at = record.ts if isinstance(event, says.QuestionWithdrawn) else None
            _set_column(batch, "messages", event.message, "withdrawn_at", at)
        case says.SessionCreated():
            by = (event.created_at or record.ts, event.created_by or record.actor, record.ts)
            row = (event.session, event.key, event.title, event.kbs, event.agent, *by)
            batch.gather(PendingSessions, after=()).sessions.append((*row, None, False))
        case says.SessionDeleted() | says.SessionRestored():
            at = record.ts if isinstance(event, says.SessionDeleted) else None
            _set_column(batch, "sessions", event.session, "deleted_at", at)
        case says.SessionPurged():
            _empty_session(batch, record, event.session)


def _add_question(batch: ChangeBatch, record: Record, event: says.QuestionAsked) -> None:
    at, by = event.asked_at or record.ts, event.asked_by or record.actor
    row = (event.message, event.session, event.question, event.references, event.answerer)
    seqs = (event.model, event.profile, at, by, record.seq, record.seq)
    pending = batch.gather(PendingSessions, after=())
    pending.messages.append((*row, *seqs, *[None] * 4))
    pending.updated[event.session] = record.ts


def _empty_session(batch: ChangeBatch, record: Record, session: int) -> None:
    """Empties the row of a session; the same row remains if the log no longer has it."""
    db = batch.settled()
    for table, condition in _PURGE_CONDITIONS.items():
        db.execute(f"delete from {table} where {condition}", [session])  # noqa: S608
    row = (session, "", "", None, None, record.ts, "", record.ts, record.ts, True)
    db.insert("sessions", [row])


def _set_column(batch: ChangeBatch, table: str, id: int, column: str, value: str | None) -> None:
    batch.settled().execute(f"update {table} set {column} = ? where id = ?", [value, id])  # noqa: S608


def piece_erased(batch: ChangeBatch, record: Record, event: Erased) -> None:
    """Puts a placeholder in the place of an erased piece of an answer that has other pieces."""
    if event.message_id is not None:
        batch.add("pieces", (event.message_id, record.seq, batch.index, "replaced", event.was, []))


# -------------------------------------------------------------------------- all


def nothing(batch: ChangeBatch, record: Record, event: Event) -> None:
    """Folds nothing: the row in the table of events is enough."""


FOLDS: dict[type[Event], Callable[[ChangeBatch, Record, Any], None]] = {
    KbCreated: kb_created,
    KbUpdated: kb_updated,
    KbDeleted: kb_deleted,
    DocWritten: document_written,
    DocChanged: document_changed,
    DocDeleted: document_deleted,
    ChunkDeleted: chunks_deleted,
    FileFailed: file_failed,
    FileCleared: file_cleared,
    EntrySuperseded: entry_superseded,
    EntryRevived: entries_revived,
    EntryReviewed: entry_reviewed,
    AgentWritten: agent_written,
    AgentDeleted: agent_deleted,
    DocPurged: documents_purged,
    ContentForgotten: nothing,
    PurgeEnded: nothing,
    Erased: piece_erased,
    ModelUsed: nothing,
    LogRepaired: nothing,
    PlanApproved: nothing,
    FolderWatched: folder_watched,
    FolderUnwatched: folder_unwatched,
    **dict.fromkeys(get_args(says.OfSession), session_event),
}
# The kinds of pending changes, in writing order.
_CHANGE_KINDS = (
    PendingDocuments,
    PendingLinks,
    PendingRevivals,
    PendingReviews,
    PendingSessions,
)


def fold(db: Tables, records: Iterable[Record]) -> bool:
    """Folds records in, in order; returns whether the roster has changed."""
    batch = ChangeBatch(db, _CHANGE_KINDS)
    last: Record | None = None
    for record in records:
        for index, event in enumerate(codec.decode(record.events)):
            batch.index = index
            FOLDS[type(event)](batch, record, event)
            batch.given = batch.given.and_by(event.gives())
            _add_event_rows(batch, record, index, event)
        _add_token_row(batch, record)
        last = record
    batch.flush()
    if last is not None:
        ids = ", ".join(f"{name} = greatest({name}, ?)" for name in batch.given._fields)
        values = [last.seq, last.hash, last.ts, *batch.given]
        db.execute(f"update head set seq = ?, hash = ?, ts = ?, {ids}", values)  # noqa: S608
    return batch.roster_changed


def _add_event_rows(batch: ChangeBatch, record: Record, index: int, event: Event) -> None:
    """Adds an event to the table of events, one row a document, without the event's content."""
    subject = event.concerns()
    shared_columns = (
        record.seq,
        index,
        record.ts,
        record.actor,
        record.method,
        event.tag(),
        subject.within,
    )
    for id in subject.documents or (None,):
        batch.add(
            "events", (*shared_columns, id, subject.revision, subject.session, subject.message)
        )


def _add_token_row(batch: ChangeBatch, record: Record) -> None:
    """Adds the result that later requests with the same token get."""
    if record.token is not None:
        key = (record.actor, record.method, record.token)
        batch.add("tokens", (*key, *astuple(token_row(record))))
