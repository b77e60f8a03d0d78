"""A document's next revision.

Owns: a parsed source as Content, the events that write or change a document, and
the document that results from them.
Refuses to know: where a source comes from, and who may change what.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from kbproc.base.threads import Held
from kbproc.documents.document import Document, Source, document_of
from kbproc.events.document import ChunkText, DocChanged, DocWritten, SourceFacts
from kbproc.events.event import Event
from kbproc.sources.parse.formats import PARSER_VERSION
from kbproc.store.decision import Here
from kbproc.store.state import IndexStatus, Model
from kbproc.views.catalog.rows import DocumentRow

_RECORD_DOCUMENTS = 32
_RECORD_CHUNKS = 400


def document_after(
    event: DocWritten, *, created_at: str, now: str, status: IndexStatus
) -> Document:
    """The document as it will be once `event` is committed."""
    return Document(
        id=event.id,
        kb=event.kb,
        title=event.title,
        type=event.doc_type,  # type: ignore[arg-type]
        source=Source(path=event.path, url=event.url, source_id=event.source_id),
        tags=event.tags,
        metadata=event.metadata,
        revision=event.revision,
        chunk_count=len(event.chunks),
        size_bytes=event.size_bytes,
        sha256=event.source_sha256,
        index_status=status,
        created_at=created_at,
        updated_at=now,
        pages=event.pages,
        unread=(event.source_facts.unread if event.source_facts else None) or UNSET,
    )


class Content(Struct, frozen=True, kw_only=True):
    """A parsed source, ready to become a document's revision. `source`: None for a preview."""

    title: str
    doc_type: str
    chunks: list[ChunkText]
    sha256: str
    size_bytes: int
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    pages: int | None = None
    unread: dict[str, int] = {}
    source: Held | None = None


class Labels(Struct, frozen=True):
    """A document's tags and metadata, and what of them its source states itself."""

    tags: list[str]
    metadata: dict[str, Any]
    source_facts: SourceFacts | None


def labels_of(
    content: Content, existing: DocumentRow | None, tags: list[str], metadata: dict[str, Any]
) -> Labels:
    """The labels of the next revision; `tags` and `metadata` are given with the request.

    A three-way merge: what the source stated at the last revision is the base, what the document
    has is one side, and what the source states now is the other. So a label that is removed from
    the source goes, and one that was given or removed by hand stays so. Where the base is not
    known, every label of the document stays. At most 16 tags.
    """
    known = _known_facts(existing)
    base = known or SourceFacts()
    ours = list(existing.tags) if existing else []
    by_hand = [tag for tag in ours if tag not in base.tags]
    removed = set(base.tags) - set(ours)
    stated = [tag for tag in content.tags if tag not in removed]
    fields = msgspec.json.decode(existing.metadata) if existing else {}
    facts = SourceFacts(
        tags=[tag for tag in content.tags if tag not in {*by_hand, *tags}],
        metadata=content.metadata,
        unread=content.unread,
    )
    return Labels(
        tags=list(dict.fromkeys([*stated, *by_hand, *tags]))[:16],
        metadata={**_merged(known, fields, content.metadata), **metadata},
        source_facts=None if facts == SourceFacts() else facts,
    )


def _known_facts(existing: DocumentRow | None) -> SourceFacts | None:
    """The source's own labels at the last revision; None where an older parser left them out."""
    if existing is None:
        return None
    states_nothing = existing.facts is None and existing.parser >= _FACTS_SINCE
    return SourceFacts() if states_nothing else existing.facts


def _merged(
    known: SourceFacts | None, ours: dict[str, Any], theirs: dict[str, Any]
) -> dict[str, Any]:
    """The three-way merge of metadata; where both sides changed a field, ours holds."""
    if known is None:
        return {**ours, **theirs}
    base = known.metadata
    by_hand = {key: value for key, value in ours.items() if base.get(key, _MISSING) != value}
    removed = base.keys() - ours.keys()
    stated = {key: value for key, value in theirs.items() if key not in removed}
    order = dict.fromkeys((*ours, *theirs))
    merged = {**stated, **by_hand}
    return {key: merged[key] for key in order if key in merged}


_MISSING = object()
_FACTS_SINCE = 3  # the PARSER_VERSION from which on a source that states nothing has no facts


def written(
    here: Here,
    content: Content,
    *,
    kb: str,
    existing: DocumentRow | None,
    ids: Ids,
    tags: list[str],
    metadata: dict[str, Any],
    source_facts: SourceFacts | None = None,
    moved_from: str | None = None,
    path: str | None = None,
    url: str | None = None,
    source_id: str | None = None,
) -> DocWritten:
    """The event for a new document, or for a new revision of `existing`.

    `source_facts`: None where labels were not merged with the source's own.
    """
    if source_facts is None and content.unread:
        source_facts = SourceFacts(unread=content.unread)
    first_chunk = ids.chunks(len(content.chunks))
    return DocWritten(
        id=existing.id if existing else ids.document(),
        kb=kb,
        revision=existing.revision + 1 if existing else 1,
        title=content.title,
        doc_type=content.doc_type,
        source_sha256=content.sha256,
        size_bytes=content.size_bytes,
        first_chunk=first_chunk,
        chunks=content.chunks,
        parser=PARSER_VERSION,
        path=path,
        url=url,
        source_id=source_id,
        tags=tags,
        metadata=metadata,
        pages=content.pages,
        source_facts=source_facts,
        moved_from=moved_from,
    )


def fills_record(chunk_counts: Iterable[int]) -> bool:
    """Whether documents with so many chunks each are enough for one record of the log."""
    counts = list(chunk_counts)
    return len(counts) >= _RECORD_DOCUMENTS or sum(counts) >= _RECORD_CHUNKS


class Ids:
    """Hands out the next ids; the log makes them final."""

    def __init__(self, here: Here) -> None:
        self._document = here.head.next_document
        self._chunk = here.head.next_chunk

    def document(self) -> int:
        self._document += 1
        return self._document - 1

    def chunks(self, count: int) -> int:
        self._chunk += count
        return self._chunk - count


def changed(
    here: Here,
    row: DocumentRow,
    *,
    content: Content | None,
    title: str | None,
    tags: list[str] | None,
    metadata: dict[str, Any] | None,
    model: Model,
) -> tuple[Event, Document]:
    """What doc.update writes, and the document that results; None keeps what is there."""
    new_tags = list(row.tags) if tags is None else tags
    new_metadata = msgspec.json.decode(row.metadata) if metadata is None else metadata
    if content is not None:
        event = written(
            here,
            msgspec.structs.replace(content, title=title or row.title),
            kb=row.kb,
            existing=row,
            ids=Ids(here),
            tags=new_tags,
            metadata=new_metadata,
            path=row.path,
            url=row.url,
            source_id=row.source_id,
        )
        status = model.status_when_new
        return event, document_after(event, created_at=row.created_at, now=here.ts, status=status)
    change = DocChanged(
        id=row.id,
        revision=row.revision + 1,
        title=title or row.title,
        tags=new_tags,
        metadata=new_metadata,
    )
    made = msgspec.structs.replace(
        document_of(row, model),
        title=change.title,
        tags=new_tags,
        metadata=new_metadata,
        revision=change.revision,
        updated_at=here.ts,
    )
    return change, made
