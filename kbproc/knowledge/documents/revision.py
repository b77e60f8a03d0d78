"""Makes a document's next revision: the event that writes it, and the document that results.

The module also makes the decision that hides documents, with the limit beyond which it is a bulk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.structs import common_members
from kbproc.base.values import MOST_TAGS
from kbproc.base.wording import plural
from kbproc.engine.events.document import (
    ChunkText,
    DocChanged,
    DocDeleted,
    DocWritten,
    ParsedFacts,
    SourceFacts,
    parsed_facts_of,
)
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import Origin, least, next_origin
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.blobs import NewSource
from kbproc.engine.sources.parse.formats import PARSER_VERSION
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.model import IndexStatus, Model
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents.document import Document, Source, document_of

RECORD_DOCUMENTS = 128
_RECORD_CHUNKS = 400


_of_event = common_members(Document, DocWritten, but=("created_at", "modified_at"))


def document_after(
    event: DocWritten, *, created_at: str, now: str, status: IndexStatus
) -> Document:
    """Returns the document as it will be once `event` is committed."""
    return Document(
        **_of_event(event),
        type=event.doc_type,  # type: ignore[arg-type]
        source=Source(path=event.path, url=event.url, source_id=event.source_id),
        chunk_count=len(event.chunks),
        sha256=event.source_sha256,
        index_status=status,
        created_at=created_at,
        updated_at=now,
        unread=(event.source_facts.unread if event.source_facts else None) or UNSET,
        modified_at=event.modified_at or UNSET,
    )


class Content(ParsedFacts, frozen=True, kw_only=True):
    """A parsed source, ready to become a document's revision. `source`: None for a preview.

    `parts`: the files within the source, each with its path there, the digest of its bytes, and
    its content, which is None for a file that was read before.
    `stamp`: see SourceFacts. `modified_at`: see DocWritten. `origin`: the least trusted of the
    text's authors, where the source tells them. `messages`, `derived_from`: see Parsed.
    """

    title: str
    doc_type: str
    chunks: list[ChunkText]
    sha256: str
    size_bytes: int
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    unread: dict[str, int] = {}
    source: NewSource | None = None
    parts: list[tuple[str, str, Content | KbprocError | None]] = []
    stamp: str = ""
    origin: Origin | None = None
    messages: list[str] = []
    derived_from: list[str] = []
    modified_at: str | None = None


class Labels(Struct, frozen=True):
    """A document's tags and metadata, and those of them that its source states itself.

    `left_out_tags`: tags that the document can't have because it has MOST_TAGS others.
    """

    tags: list[str]
    metadata: dict[str, Any]
    source_facts: SourceFacts | None
    left_out_tags: list[str] = []


def labels_of(
    content: Content, existing: DocumentRow | None, tags: list[str], metadata: dict[str, Any]
) -> Labels:
    """Returns the labels of the next revision; `tags` and `metadata` come with the request.

    A three-way merge: what the source stated at the last revision is the base, what the document
    has is one side, and what the source states now is the other. So a label that is removed from
    the source goes, and one that a person added or removed stays so. Where the base is not
    known, every label of the document stays.
    """
    last_facts = _last_stated_facts(existing)
    base = last_facts or SourceFacts()
    ours = list(existing.tags) if existing else []
    by_hand = [tag for tag in ours if tag not in base.tags]
    removed = set(base.tags) - set(ours)
    stated = [tag for tag in content.tags if tag not in removed]
    fields = msgspec.json.decode(existing.metadata) if existing else {}
    facts = SourceFacts(
        tags=[tag for tag in content.tags if tag not in {*by_hand, *tags}],
        metadata=content.metadata,
        unread=content.unread,
        stamp=content.stamp,
    )
    all_tags = list(dict.fromkeys([*stated, *by_hand, *tags]))
    return Labels(
        tags=all_tags[:MOST_TAGS],
        left_out_tags=all_tags[MOST_TAGS:],
        metadata={**_merged(last_facts, fields, content.metadata), **metadata},
        source_facts=None if facts == SourceFacts() else facts,
    )


def _last_stated_facts(existing: DocumentRow | None) -> SourceFacts | None:
    """Returns the source's labels at the last revision; None if an older parser left them out."""
    if existing is None:
        return None
    states_nothing = existing.facts is None and existing.parser >= _FACTS_SINCE
    return SourceFacts() if states_nothing else existing.facts


def _merged(
    last_facts: SourceFacts | None, ours: dict[str, Any], theirs: dict[str, Any]
) -> dict[str, Any]:
    """Returns the three-way merge of metadata; where both sides changed a field, ours holds."""
    if last_facts is None:
        return {**ours, **theirs}
    base = last_facts.metadata
    by_hand = {key: value for key, value in ours.items() if base.get(key, _MISSING) != value}
    removed = base.keys() - ours.keys()
    stated = {key: value for key, value in theirs.items() if key not in removed}
    order = dict.fromkeys((*ours, *theirs))
    merged = {**stated, **by_hand}
    return {key: merged[key] for key in order if key in merged}


_MISSING = object()
_FACTS_SINCE = 3  # the PARSER_VERSION from which on a source that states nothing has no facts


def document_written(
    here: DecisionState,
    content: Content,
    *,
    kb: str,
    existing: DocumentRow | None,
    ids: Ids,
    tags: list[str],
    metadata: dict[str, Any],
    source_facts: SourceFacts | None = None,
    origin: Origin | None = None,
    moved_from: str | None = None,
    path: str | None = None,
    url: str | None = None,
    source_id: str | None = None,
) -> DocWritten:
    """Returns the event for a new document, or for a new revision of `existing`.

    `source_facts`: None where labels were not merged with the source's own. `origin`: what the
    caller says of the text; None: it is the caller's own.
    """
    if source_facts is None and content.unread:
        source_facts = SourceFacts(unread=content.unread)
    first_chunk = ids.chunks(len(content.chunks))
    if content.source is not None:
        here.new_sources.append(content.source)
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
        source_facts=source_facts,
        moved_from=moved_from,
        origin=next_origin(
            here.origin,
            stated=origin,
            before=None if existing is None else existing.origin,
            is_same_text=_is_same_text(existing, content),
        ),
        modified_at=content.modified_at,
        **parsed_facts_of(content),
    )


def _is_same_text(existing: DocumentRow | None, content: Content) -> bool:
    if existing is None:
        return False
    return (existing.sha256, existing.title) == (content.sha256, content.title)


def origin_with(
    here: DecisionState, row: DocumentRow, *, title: str, metadata: dict[str, Any]
) -> Origin:
    """Returns the document's origin once it has this title and metadata.

    They are words, too, so that somebody who is trusted less lowers it with them.
    """
    if title == row.title and metadata == msgspec.json.decode(row.metadata):
        return row.origin
    return least(row.origin, here.origin)


def fills_record(documents: int, chunks: int) -> bool:
    """Returns True if so many documents and chunks are enough for one record of the log.

    A commit writes whole pages of the catalog, and so takes short documents by the hundred.
    """
    return documents >= RECORD_DOCUMENTS or chunks >= _RECORD_CHUNKS


class Ids:
    """Hands out the next ids; the log makes them final."""

    def __init__(self, here: DecisionState) -> None:
        self._document = here.head.next_document
        self._chunk = here.head.next_chunk

    def document(self) -> int:
        self._document += 1
        return self._document - 1

    def chunks(self, count: int) -> int:
        self._chunk += count
        return self._chunk - count


def update_of(
    here: DecisionState,
    row: DocumentRow,
    *,
    content: Content | None,
    title: str | None,
    tags: list[str] | None,
    metadata: dict[str, Any] | None,
    model: Model,
) -> tuple[Event, Document]:
    """Returns the event that doc.update writes, and the document that results.

    A value of None keeps the document's own.
    """
    new_tags = list(row.tags) if tags is None else tags
    new_metadata = msgspec.json.decode(row.metadata) if metadata is None else metadata
    if content is not None:
        event = document_written(
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
    origin = origin_with(here, row, title=title or row.title, metadata=new_metadata)
    change = DocChanged(
        id=row.id,
        revision=row.revision + 1,
        title=title or row.title,
        tags=new_tags,
        metadata=new_metadata,
        origin=origin if origin != row.origin else None,
    )
    document = msgspec.structs.replace(
        document_of(row, model),
        title=change.title,
        tags=new_tags,
        metadata=new_metadata,
        origin=origin,
        revision=change.revision,
        updated_at=here.ts,
    )
    return change, document


# -------------------------------------------------------------------- deletion


def targets_of(rows: Iterable[DocumentRow]) -> list[Target]:
    return [
        Target(kind="document", id=row.id, name=row.title, revision=row.revision) for row in rows
    ]


MANY = 10  # a person takes in fewer documents at a glance


def is_bulk(here: DecisionState, kb: str, removed: int) -> bool:
    """Returns True for more than half the documents of a knowledge base that is not small."""
    documents = here.queries.kb_counts([kb]).get(kb, (0, 0, 0))[0]
    return documents >= MANY and removed * 2 > documents


class Deleted(Struct, kw_only=True, frozen=True):
    """Hidden from every read; the log keeps the text until it is purged."""

    deleted: int
    ids: list[int]


def deletion(here: DecisionState, rows: Sequence[DocumentRow]) -> Decision:
    return Decision(
        events=[DocDeleted(id=row.id) for row in rows],
        data=Deleted(deleted=len(rows), ids=[row.id for row in rows][:1000]),
        targets=targets_of(rows),
        changes=[f"hide “{row.title}” ({plural(row.chunk_count, 'chunk')})" for row in rows],
        bulk=any(is_bulk(here, kb, count) for kb, count in _per_kb(rows).items()),
    )


def _per_kb(rows: Iterable[DocumentRow]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.kb] = counts.get(row.kb, 0) + 1
    return counts
