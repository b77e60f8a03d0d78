"""Folds every event into the catalog's tables.

FOLDS has a line for every event. `fold` also writes the tables events, tokens and head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import msgspec
from msgspec.structs import asdict, astuple

from kbproc.engine.events import codec
from kbproc.engine.events import session as says
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.document import (
    CONVERSATION,
    ChunkDeleted,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.entry import EntryReplaces, EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event, NextIds
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
from kbproc.engine.projections.catalog.rows import (
    DocumentRow,
    Head,
    anchors_column,
    chunk_columns,
    document_row,
    entry_columns,
    token_row,
    watch_row,
)
from kbproc.engine.projections.catalog.tables import codec_of
from kbproc.engine.projections.catalog.writer import TableWriter


class FoldState:
    """The tables that some records are folded into, and what they change besides."""

    def __init__(self, tables: TableWriter) -> None:
        self.tables = tables
        self.given = NextIds()
        self.index = 0  # position of the current event in its record
        self.roster_changed = False  # see rows.Roster
        self.links = PendingLinks()


# -------------------------------------------------------------------- documents

_REVIEW = ("verified_by", "verified_at", "review_after")
_RETAINED = ("created_at", "created_by", "superseded_by", *_REVIEW)
_DROP_CHUNKS = "delete from chunks where document_id = ?"
_DROP_STANDING = "delete from standing where document = ?"


def document_written(state: FoldState, record: Record, event: DocWritten) -> None:
    """Writes a document. A replaced one keeps its creation time, creator and links."""
    tables = state.tables
    new = _columns_of(document_row(record, event))
    if event.entry is not None:
        new |= entry_columns(event.entry)
        new["head"] = event.id
        state.roster_changed = True
    old = tables.document(event.id) if event.revision > 1 else None
    if old is not None:
        new |= {name: old[name] for name in _RETAINED}
        if old["head"] is not None:
            new["head"] = old["head"]
        _drop_chunks(tables, event.id)
    if new["in_review"]:  # the revision that approves it brings chunks
        tables.put_document(new | {"chunk_count": 0}, old)
        return
    tables.put_document(new, old)
    chunks = (
        (event.first_chunk + index, event.id, index, *chunk_columns(chunk))
        for index, chunk in enumerate(event.chunks)
    )
    tables.insert("chunks", *chunks)
    if event.doc_type == CONVERSATION:
        from kbproc.engine.projections.catalog import instruction  # late: few stores need it

        rows = instruction.rows_of(event.id, event.first_chunk, event.chunks, new["created_at"])
        tables.insert_standing(rows)


_NO_COLUMNS: dict[str, Any] = dict.fromkeys(codec_of("documents").columns)


def _drop_chunks(tables: TableWriter, id: int) -> None:
    tables.execute(_DROP_CHUNKS, [id])
    tables.execute(_DROP_STANDING, [id])


def _columns_of(row: DocumentRow) -> dict[str, Any]:
    """Returns the columns of a document without those of an entry."""
    return _NO_COLUMNS | asdict(row)


def document_changed(state: FoldState, record: Record, event: DocChanged) -> None:
    origin = {} if event.origin is None else {"origin": event.origin}
    state.tables.change_document(
        event.id,
        title=event.title,
        tags=event.tags,
        metadata=msgspec.json.encode(event.metadata).decode(),
        revision=event.revision,
        updated_at=record.ts,
        touched=record.seq,
        updated_by=record.actor,
        **origin,
    )


def document_deleted(state: FoldState, record: Record, event: DocDeleted) -> None:
    hidden = {"deleted_at": record.ts, "touched": record.seq, "chunk_count": 0}
    state.tables.change_document(event.id, **hidden)
    _drop_chunks(state.tables, event.id)


def chunks_deleted(state: FoldState, record: Record, event: ChunkDeleted) -> None:
    tables = state.tables
    for id in event.ids:
        tables.execute("delete from chunks where id = ?", [id])
        tables.execute(
            "delete from standing where document = ? and chunk = ?", [event.document_id, id]
        )
    counting = "select count(*) from chunks where document_id = ?"
    state.tables.change_document(
        event.document_id,
        revision=event.revision,
        updated_at=record.ts,
        updated_by=record.actor,
        touched=record.seq,
        chunk_count=tables.execute(counting, [event.document_id]).fetchall()[0][0],
    )


def documents_purged(state: FoldState, record: Record, event: DocPurged) -> None:
    """Empties the rows of documents; the same rows remain if the log no longer has them."""
    for id in event.ids:
        state.tables.remove_document(id)
        _drop_chunks(state.tables, id)
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
        state.tables.put_document(_columns_of(row), None)


def file_failed(state: FoldState, record: Record, event: FileFailed) -> None:
    row = (event.kb, event.path, event.error, event.message, event.sha256, record.ts)
    state.tables.insert("failures", row)


def file_cleared(state: FoldState, record: Record, event: FileCleared) -> None:
    sql = "delete from failures where kb = ? and path = ?"
    state.tables.execute(sql, [event.kb, event.path])


# ---------------------------------------------------------------------- entries
# An entry is its own head until another entry supersedes it. Then the head of its successor becomes
# the head of the entry and of all entries behind it, so `head` is the last entry of every chain.


class PendingLinks:
    """Links of entries that are written together: entry, successor, the record's seq, in order.

    One at a time, a chain of thousands would be walked for each of its links.
    """

    def __init__(self) -> None:
        self._links: list[tuple[int, int, int]] = []

    def add(self, id: int, by: int, seq: int) -> None:
        self._links.append((id, by, seq))

    def flush(self, tables: TableWriter) -> None:
        """Writes the links. A purged successor has no head; its id then serves as the head."""
        new_heads: dict[int, int] = {}
        for id, by, _ in self._links:
            rows = tables.execute("select head from documents where id = ?", [by]).fetchall()
            new_heads[id] = _end(new_heads, rows[0][0] or by if rows else by)
        for id in new_heads:
            tables.move_heads(id, _end(new_heads, id))
        for id, by, seq in self._links:
            tables.change("documents", "id", id, superseded_by=by, touched=seq)
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


def entry_superseded(state: FoldState, record: Record, event: EntrySuperseded) -> None:
    state.links.add(event.id, event.by, record.seq)
    state.roster_changed = True


def entries_revived(state: FoldState, record: Record, event: EntryRevived) -> None:
    for id, head in _heads(state.tables, event.ids).items():
        state.tables.change("documents", "id", id, head=head)
    for id in event.ids:
        state.tables.change("documents", "id", id, superseded_by=None, touched=record.seq)
    state.roster_changed = True


def _heads(tables: TableWriter, ids: list[int]) -> dict[int, int]:
    """Returns the new head of each entry: itself for those in `ids`, which also become the heads
    of the entries behind them, up to the next one in `ids`.
    """
    sql = (
        "select id, superseded_by from documents where superseded_by is not null and head in "
        "(select head from documents where id = ?)"
    )
    successors = {row for id in ids for row in tables.execute(sql, [id]).fetchall()}
    predecessors: dict[int, list[int]] = defaultdict(list)
    revived = set(ids)
    for id, successor in successors:
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


def entry_reviewed(state: FoldState, record: Record, event: EntryReviewed) -> None:
    """Notes a review, with the record's seq, so that the entry's index rows change."""
    review = {name: getattr(event, name) for name in _REVIEW}
    if event.anchors is not None:
        review["anchors"] = anchors_column(event.anchors)
    state.tables.change("documents", "id", event.id, **review, touched=record.seq)


def entry_replaces(state: FoldState, record: Record, event: EntryReplaces) -> None:
    columns = {"replaces": event.replaces, "touched": record.seq}
    state.tables.change("documents", "id", event.id, **columns)


# ------------------------------------------------------ knowledge bases, agents


def kb_created(state: FoldState, record: Record, event: KbCreated) -> None:
    row = (event.slug, event.name, event.description, 1, record.ts, record.ts, event.review)
    state.tables.insert("kbs", row)
    state.roster_changed = True


def kb_updated(state: FoldState, record: Record, event: KbUpdated) -> None:
    if (old := state.tables.row("kbs", "slug", event.slug)) is not None:
        new = {"name": event.name, "description": event.description, "review": event.review}
        times = {"revision": old["revision"] + 1, "updated_at": record.ts}
        state.tables.change("kbs", "slug", event.slug, **new, **times)


def kb_deleted(state: FoldState, record: Record, event: KbDeleted) -> None:
    state.tables.execute("delete from kbs where slug = ?", [event.slug])
    state.tables.execute("delete from failures where kb = ?", [event.slug])
    state.roster_changed = True


def agent_written(state: FoldState, record: Record, event: AgentWritten) -> None:
    """Replaces an agent's row. Its creation time stays, unless the agent was deleted before."""
    old = state.tables.row("agents", "slug", event.slug)
    is_live = old is not None and old["deleted_at"] is None
    quotas = msgspec.json.encode(event.quotas, order="sorted").decode()
    settings = (event.kbs, event.folder, event.scopes, quotas, event.instructions)
    times = (old["created_at"] if old and is_live else record.ts, record.ts, None)
    row = (event.slug, event.description, *settings, event.revision, *times)
    state.tables.insert("agents", row)
    state.roster_changed = True


def agent_deleted(state: FoldState, record: Record, event: AgentDeleted) -> None:
    """Marks an agent as deleted. The row stays: a name that never was an agent has all rights."""
    state.tables.change("agents", "slug", event.slug, deleted_at=record.ts)
    state.roster_changed = True


# -------------------------------------------------------------- watched folders

_DROP_WATCH = "delete from watches where machine = ? and path = ?"


def folder_watched(state: FoldState, record: Record, event: FolderWatched) -> None:
    state.tables.execute(_DROP_WATCH, [event.machine, event.path])
    row = watch_row(event, added_at=record.ts, added_by=record.actor)
    state.tables.insert("watches", astuple(row))
    state.roster_changed = True


def folder_unwatched(state: FoldState, record: Record, event: FolderUnwatched) -> None:
    state.tables.execute(_DROP_WATCH, [event.machine, event.path])
    state.roster_changed = True


# --------------------------------------------------------------------- sessions

_SESSION_PIECES = "message_id in (select id from messages where session_id = ?)"
_PURGE_CONDITIONS = {"pieces": _SESSION_PIECES, "messages": "session_id = ?", "sessions": "id = ?"}


def session_event(state: FoldState, record: Record, event: says.OfSession) -> None:
    tables = state.tables
    if isinstance(event, says.OfMessage) and event.piece is not None:
        place = (event.message, record.seq, state.index)
        tables.insert("pieces", (*place, *event.piece, event.repeats))
    match event:
        case says.AnswerRestarted():
            none = dict.fromkeys(("status", "ending", "ended_at"))
            tables.change("messages", "id", event.message, **none, attempt_seq=record.seq)
        case says.AnswerEnded():
            ending = msgspec.json.encode(event).decode()
            end = {
                "status": event.status,
                "ending": ending,
                "ended_at": event.ended_at or record.ts,
            }
            tables.change("messages", "id", event.message, **end)
        case says.QuestionAsked():
            _add_question(tables, record, event)
        case says.QuestionWithdrawn() | says.QuestionRestored():
            at = record.ts if isinstance(event, says.QuestionWithdrawn) else None
            tables.change("messages", "id", event.message, withdrawn_at=at)
        case says.SessionCreated():
            by = (event.created_at or record.ts, event.created_by or record.actor, record.ts)
            row = (event.session, event.key, event.title, event.kbs, event.agent, *by)
            tables.insert("sessions", (*row, None, False))
        case says.SessionDeleted() | says.SessionRestored():
            at = record.ts if isinstance(event, says.SessionDeleted) else None
            tables.change("sessions", "id", event.session, deleted_at=at)
        case says.SessionPurged():
            _empty_session(tables, record, event.session)


def _add_question(tables: TableWriter, record: Record, event: says.QuestionAsked) -> None:
    at, by = event.asked_at or record.ts, event.asked_by or record.actor
    row = (event.message, event.session, event.question, event.references, event.answerer)
    seqs = (event.model, event.profile, at, by, record.seq, record.seq)
    tables.insert("messages", (*row, *seqs, *[None] * 4))
    tables.change("sessions", "id", event.session, updated_at=record.ts)


def _empty_session(tables: TableWriter, record: Record, session: int) -> None:
    """Empties the row of a session; the same row remains if the log no longer has it."""
    for table, condition in _PURGE_CONDITIONS.items():
        tables.execute(f"delete from {table} where {condition}", [session])  # noqa: S608
    row = (session, "", "", None, None, record.ts, "", record.ts, record.ts, True)
    tables.insert("sessions", row)


def piece_erased(state: FoldState, record: Record, event: Erased) -> None:
    """Puts a placeholder in the place of an erased piece of an answer that has other pieces."""
    if event.message_id is not None:
        place = (event.message_id, record.seq, state.index)
        state.tables.insert("pieces", (*place, "replaced", event.was, []))


# -------------------------------------------------------------------------- all


def nothing(state: FoldState, record: Record, event: Event) -> None:
    """Folds nothing: the row in the table of events is enough."""


FOLDS: dict[type[Event], Callable[[FoldState, Record, Any], None]] = {
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
    EntryReplaces: entry_replaces,
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


def fold(
    tables: TableWriter,
    records: Iterable[Record],
    head: Head,
    decode: Callable[[msgspec.Raw], Sequence[Event]] | None = None,
) -> tuple[Head, bool]:
    """Folds records in, in order; returns the head behind them, and whether the roster has changed.

    `head`: the head before them. Its table is the caller's to change. `decode`: see Catalog.apply.
    """
    decode = decode or codec.decode
    state = FoldState(tables)
    last: Record | None = None
    tables.drop_changes()
    for record in records:
        for index, event in enumerate(decode(record.events)):
            state.index = index
            if not isinstance(event, EntrySuperseded) and not _is_new(event):
                state.links.flush(tables)
            FOLDS[type(event)](state, record, event)
            state.given = state.given.and_by(event.gives())
            _add_event_rows(state, record, event)
        if record.token is not None:
            key = (record.actor, record.method, record.token)
            tables.insert("tokens", (*key, *astuple(token_row(record))))
        last = record
    state.links.flush(tables)
    tables.flush()
    if last is not None:
        next_ids = head.given.and_by(state.given)
        head = Head(last.seq, last.hash, last.ts, *astuple(next_ids))
    return head, state.roster_changed


def _is_new(event: Event) -> bool:
    return isinstance(event, DocWritten) and event.revision == 1


def _add_event_rows(state: FoldState, record: Record, event: Event) -> None:
    """Adds an event to the table of events, one row a document, without the event's content."""
    subject = event.concerns()
    shared_columns = (
        record.seq,
        state.index,
        record.ts,
        record.actor,
        record.method,
        event.tag(),
        subject.within,
    )
    rows = (
        (*shared_columns, id, subject.revision, subject.session, subject.message, place)
        for place, id in enumerate(subject.documents or (None,))
    )
    state.tables.insert("events", *rows)
