"""Bringing documents back.

Owns: what a deleted or changed document becomes again, and what stands in its way:
a knowledge base that is gone, another document from the same source.
Refuses to know: how the past is read (timeline.py), params and the wire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.wording import plural, there_is_no
from kbproc.documents.deletion import targets_of
from kbproc.documents.document import Document
from kbproc.documents.lookup import check_revision, is_purged, refuse_others, unknown_kb
from kbproc.documents.revision import document_after
from kbproc.events.document import DocWritten
from kbproc.events.event import Event
from kbproc.history.state import DocumentState, State, Unknown, towards, written_again
from kbproc.history.timeline import PastRecords, Timeline
from kbproc.log.interface import Log
from kbproc.store.decision import Decision, Here
from kbproc.store.state import IndexStatus, Model
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow


class Restored(Struct, kw_only=True, frozen=True):
    """`unchanged`: those that were already as they should be."""

    restored: int
    documents: list[Document]
    unchanged: list[int]


class Return(NamedTuple):
    """A document and the state that it is brought back to; None: it stays as it is."""

    row: DocumentRow
    now: State
    wanted: DocumentState | None

    @property
    def events(self) -> list[Event]:
        return towards(self.now, self.wanted, self.row.revision + 1) if self.wanted else []


def restore(
    here: Here,
    log: Log,
    model: Model,
    *,
    ids: Sequence[int],
    revision: int | None,
    expected_revision: int | None,
) -> Decision:
    """Deleted documents as they were, or one document as it was at `revision`.

    Raises resource.not_found, resource.already_exists, resource.conflict.
    """
    records = PastRecords(log, here.head.seq)
    rows = _require_known(here.queries, ids)
    refuse_others(rows, method="doc.restore", field="$.params.ids")
    for row in rows:
        check_revision(row, expected_revision)
    returns = [_return(here.queries, records, row, revision) for row in rows]
    events = {back.row.id: back.events for back in returns}
    coming = [back for back in returns if events[back.row.id]]
    _require_room(here.queries, coming)
    status = model.status_when_new
    made = [_made(back.row, back.wanted, here.ts, status) for back in coming if back.wanted]
    return Decision(
        events=[event for back in coming for event in events[back.row.id]],
        data=Restored(
            restored=len(made),
            documents=made,
            unchanged=[back.row.id for back in returns if not events[back.row.id]],
        ),
        targets=targets_of(back.row for back in coming),
        changes=[
            f"bring back “{doc.title}” ({plural(doc.chunk_count, 'chunk')})"
            + ("" if revision is None else f" as it was at revision {revision}")
            for doc in made
        ],
    )


def _require_known(queries: Queries, ids: Sequence[int]) -> list[DocumentRow]:
    found = queries.documents_by_id(ids)
    missing = [id for id in ids if id not in found]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field="$.params.ids",
            hint="See doc.history for what became of a document.",
            detail={"missing": missing[:100]},
        )
    return [found[id] for id in dict.fromkeys(ids)]


def _return(
    queries: Queries, records: PastRecords, row: DocumentRow, revision: int | None
) -> Return:
    if revision is None and row.deleted_at is None:
        return Return(row, None, None)
    timeline = Timeline(records, row.id, queries.events_of_document(row.id))
    if timeline.purge is not None or is_purged(row):
        raise purged(timeline)
    index = len(timeline.touches) - 1
    if revision is not None:
        index = _require_revision(timeline, revision)
    wanted = timeline.state_after(index)
    if not isinstance(wanted, DocumentState):
        forgotten = isinstance(wanted, Unknown) and wanted.why == "forgotten"
        raise KbprocError(
            "resource.not_found",
            f"What document {row.id} held then is not in the log any more: "
            + ("store.compact has erased it." if forgotten else "its record was damaged."),
            field="$.params.ids" if revision is None else "$.params.revision",
            hint="A backup that was made before may still have it.",
        )
    return Return(row, timeline.now, replace(wanted, deleted=False))


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
        known = sorted({touch.revision for touch in timeline.touches if touch.revision})
        raise KbprocError(
            "resource.not_found",
            f"Document {timeline.id} has no revision {revision}.",
            field="$.params.revision",
            valid_values=known[-20:],
            hint="See doc.history for its revisions.",
        )
    return index


def _require_room(queries: Queries, coming: Sequence[Return]) -> None:
    """Raises resource.not_found where a knowledge base is gone, resource.already_exists
    where another document has come from the same source since."""
    deleted = [back.wanted for back in coming if back.row.deleted_at and back.wanted]
    slugs = queries.kb_slugs()
    for state in deleted:
        if state.written.kb not in slugs:
            gone = unknown_kb(state.written.kb, slugs, field="$.params.ids")
            gone.hint = f"Create it first: kb.create, slug {state.written.kb}."
            raise gone
    for id, holder in taken_by(queries, deleted).items():
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


def _made(row: DocumentRow, state: DocumentState, now: str, status: IndexStatus) -> Document:
    """The document as it will be."""
    event = written_again(state, row.revision + 1)
    made = document_after(event, created_at=row.created_at, now=now, status=status)
    return replace(made, chunk_count=state.chunk_count)


# ------------------------------------------------------------------------- sources


def taken_by(
    queries: Queries, coming: Sequence[DocumentState], leaving: Collection[int] = ()
) -> dict[int, int]:
    """Document that would come back → the live one that has its path, url or source_id.

    Those `leaving` make room; of two that come back from the same source the first does.
    """
    holders = _holders(queries, coming)
    found = {}
    for state in coming:
        source, id = source_of(state.written), state.written.id
        holder = holders.get(source, id)
        if source is None or holder == id or holder in leaving:
            holders[source] = id
        else:
            found[id] = holder
    return found


Source = tuple[str, str, str]


def source_of(event: DocWritten) -> Source | None:
    """Knowledge base, kind and name: what only one live document may come from."""
    for kind in ("path", "url", "source_id"):
        if (name := getattr(event, kind)) is not None:
            return event.kb, kind, name
    return None


def _holders(queries: Queries, coming: Iterable[DocumentState]) -> dict[Source | None, int]:
    """Who holds these sources now."""

    holders: dict[Source | None, int] = {}
    paths: dict[str, list[str]] = {}
    for source in filter(None, (source_of(state.written) for state in coming)):
        kb, kind, name = source
        if kind == "path":
            paths.setdefault(kb, []).append(name)
            continue
        wanted: Any = {"url": name} if kind == "url" else {"source_ids": [name]}
        for row in queries.documents(DocumentFilter(kbs=[kb], **wanted), limit=1):
            holders[source] = row.id
    for kb, names in paths.items():
        at = queries.documents_at(kb, names)
        holders.update(((kb, "path", path), row.id) for path, row in at.items())
    return holders
