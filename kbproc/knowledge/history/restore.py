"""Restores deleted documents and earlier revisions.

A restore is refused where the knowledge base no longer exists, or another live document has come
from the same source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.wording import plural, there_is_no
from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.event import Event
from kbproc.engine.log.interface import Log
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.model import IndexStatus, Model
from kbproc.knowledge.documents.document import Document
from kbproc.knowledge.documents.lookup import check_revision, is_purged, refuse_others, unknown_kb
from kbproc.knowledge.documents.revision import document_after, targets_of
from kbproc.knowledge.history.timeline import (
    DocumentState,
    PastRecords,
    State,
    Timeline,
    Unknown,
    events_towards,
)


class Restored(Struct, kw_only=True, frozen=True):
    """The result of a restore; `unchanged`: documents that already had the requested state."""

    restored: int
    documents: list[Document]
    unchanged: list[int]


class Restoration(NamedTuple):
    """A document, its state, and the state to restore; None: it stays as it is."""

    row: DocumentRow
    now: State
    target: DocumentState | None

    @property
    def events(self) -> list[Event]:
        return events_towards(self.now, self.target, self.row.revision + 1) if self.target else []


def restore(
    here: DecisionState,
    log: Log,
    model: Model,
    *,
    ids: Sequence[int],
    revision: int | None,
    expected_revision: int | None,
) -> Decision:
    """Restores deleted documents as they were, or one document as it was at `revision`.

    Raises resource.not_found, resource.already_exists, resource.conflict.
    """
    records = PastRecords(log, here.head.seq)
    rows = _require_known(here.queries, ids)
    refuse_others(rows, method="doc.restore", field="$.params.ids")
    for row in rows:
        check_revision(row, expected_revision)
    candidates = [_restoration(here.queries, records, row, revision) for row in rows]
    events = {item.row.id: item.events for item in candidates}
    restorations = [item for item in candidates if events[item.row.id]]
    _require_room(here.queries, restorations)
    status = model.status_when_new
    restored = [
        _restored_document(item.row, item.target, here.ts, status)
        for item in restorations
        if item.target
    ]
    return Decision(
        events=[event for item in restorations for event in events[item.row.id]],
        data=Restored(
            restored=len(restored),
            documents=restored,
            unchanged=[item.row.id for item in candidates if not events[item.row.id]],
        ),
        targets=targets_of(item.row for item in restorations),
        changes=[
            f"bring back “{doc.title}” ({plural(doc.chunk_count, 'chunk')})"
            + ("" if revision is None else f" as it was at revision {revision}")
            for doc in restored
        ],
    )


def _require_known(queries: Queries, ids: Sequence[int]) -> list[DocumentRow]:
    rows = queries.documents_by_id(ids)
    missing = [id for id in ids if id not in rows]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field="$.params.ids",
            hint="See doc.history for what became of a document.",
            detail={"missing": missing[:100]},
        )
    return [rows[id] for id in dict.fromkeys(ids)]


def _restoration(
    queries: Queries, records: PastRecords, row: DocumentRow, revision: int | None
) -> Restoration:
    if revision is None and row.deleted_at is None:
        return Restoration(row, None, None)
    timeline = Timeline(records, row.id, queries.events_of_document(row.id))
    if timeline.purge is not None or is_purged(row):
        raise purged(timeline)
    index = len(timeline.touches) - 1
    if revision is not None:
        index = _require_revision(timeline, revision)
    state = timeline.state_after(index)
    if not isinstance(state, DocumentState):
        forgotten = isinstance(state, Unknown) and state.why == "forgotten"
        raise KbprocError(
            "resource.not_found",
            f"What document {row.id} held then is not in the log any more: "
            + ("store.compact has erased it." if forgotten else "its record was damaged."),
            field="$.params.ids" if revision is None else "$.params.revision",
            hint="A backup that was made before may still have it.",
        )
    return Restoration(row, timeline.now, replace(state, deleted=False))


def purged(timeline: Timeline, *, field: str = "$.params.ids") -> KbprocError:
    touch = timeline.purge
    by = f" at {touch.ts} by {touch.actor}" if touch else ""
    return KbprocError(
        "resource.not_found",
        f"Document {timeline.id} was purged{by}: it is gone for good.",
        field=field,
        hint="Only backups that were made before still have it.",
        detail={"purged_by": {"seq": touch.seq, "ts": touch.ts, "actor": touch.actor}}
        if touch
        else {},
    )


def _require_revision(timeline: Timeline, revision: int) -> int:
    index = timeline.index_of_revision(revision)
    if index is None:
        revisions = sorted({touch.revision for touch in timeline.touches if touch.revision})
        raise KbprocError(
            "resource.not_found",
            f"Document {timeline.id} has no revision {revision}.",
            field="$.params.revision",
            valid_values=revisions[-20:],
            hint="See doc.history for its revisions.",
        )
    return index


def _require_room(queries: Queries, restorations: Sequence[Restoration]) -> None:
    """Checks that every document can come back.

    Raises resource.not_found where a knowledge base is gone, resource.already_exists where another
    document has come from the same source since.
    """
    deleted = [item.target for item in restorations if item.row.deleted_at and item.target]
    slugs = queries.kb_slugs()
    for state in deleted:
        if state.written.kb not in slugs:
            error = unknown_kb(state.written.kb, slugs, field="$.params.ids")
            error.hint = f"Create it first: kb.create, slug {state.written.kb}."
            raise error
    for id, holder in conflicting_documents(queries, deleted).items():
        state = next(state for state in deleted if state.written.id == id)
        raise KbprocError(
            "resource.already_exists",
            f"Document {holder} has taken the place of document {id}: "
            f"it has the same {kind_of_source(state)}.",
            field="$.params.ids",
            hint=f"Delete document {holder} first, or change it with doc.update.",
            detail={"id": holder},
        )


def kind_of_source(state: DocumentState) -> str:
    source = source_of(state.written)
    return source[1] if source else "source"


def _restored_document(
    row: DocumentRow, state: DocumentState, now: str, status: IndexStatus
) -> Document:
    """Returns the document as it will be after the restore."""
    event = state.written_again(row.revision + 1)
    document = document_after(event, created_at=row.created_at, now=now, status=status)
    return replace(document, chunk_count=state.chunk_count)


# ------------------------------------------------------------------------- sources


def conflicting_documents(
    queries: Queries, coming: Sequence[DocumentState], leaving: Collection[int] = ()
) -> dict[int, int]:
    """Returns restored document → the live one that has its path, url or source_id.

    Documents in `leaving` make room; of two documents from the same source the first is restored.
    """
    holders = _holders(queries, coming)
    conflicts = {}
    for state in coming:
        source, id = source_of(state.written), state.written.id
        holder = holders.get(source, id)
        if source is None or holder == id or holder in leaving:
            holders[source] = id
        else:
            conflicts[id] = holder
    return conflicts


Source = tuple[str, str, str]


def source_of(event: DocWritten) -> Source | None:
    """Returns knowledge base, kind and name of the source; only one live document may have it."""
    for kind in ("path", "url", "source_id"):
        if (name := getattr(event, kind)) is not None:
            return event.kb, kind, name
    return None


def _holders(queries: Queries, coming: Iterable[DocumentState]) -> dict[Source | None, int]:
    """Returns source → the id of the live document that has it."""

    holders: dict[Source | None, int] = {}
    paths: dict[str, list[str]] = {}
    for source in filter(None, (source_of(state.written) for state in coming)):
        kb, kind, name = source
        if kind == "path":
            paths.setdefault(kb, []).append(name)
            continue
        origin: Any = {"url": name} if kind == "url" else {"source_ids": [name]}
        for row in queries.documents(DocumentFilter(kbs=[kb], **origin), limit=1):
            holders[source] = row.id
    for kb, names in paths.items():
        rows = queries.documents_at(kb, names)
        holders.update(((kb, "path", path), row.id) for path, row in rows.items())
    return holders
