"""Documents: read, change, hide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import (
    DestructiveParams,
    PastListParams,
    PastParams,
    ReadParams,
    WriteParams,
)
from kbproc.base.values import (
    DocumentId,
    Metadata,
    Tags,
    Title,
    check_metadata,
    clean_name,
    clean_tags,
)
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply, Wait
from kbproc.documents import document, documents, ingest, revision
from kbproc.documents.content import content_of_text
from kbproc.documents.document import Document
from kbproc.documents.documents import Deleted, DocumentIds, Selection
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.state import IndexStatus

DOWNLOAD_BYTES = 1 << 20

Revision = Annotated[int, Meta(ge=1, description="fail if it has changed since")]


class ListDocuments(PastListParams, kw_only=True, frozen=True):
    kb: Annotated[documents.Kbs, Meta(description="one or several; all if left out")] | None = None
    types: documents.Types | None = None
    tags: Tags | None = None
    tags_mode: documents.TagsMode = "all"
    status: Annotated[IndexStatus, Meta(description="of embedding")] | None = None
    path_prefix: documents.PathPrefix | None = None
    url: documents.Url | None = None
    source_id: documents.SourceId | None = None
    title_contains: documents.TitlePart | None = None
    created_after: documents.CreatedAfter | None = None
    created_before: documents.CreatedBefore | None = None


class Get(PastParams, kw_only=True, frozen=True):
    id: DocumentId
    text: Annotated[bool, Meta(description="the whole text as well")] = False
    offset: Annotated[int, Meta(ge=0, description="first character of the text")] = 0
    length: Annotated[int, Meta(ge=1, le=8 << 20, description="most characters of the text")] = (
        1 << 20
    )


class Update(WriteParams, kw_only=True, frozen=True):
    id: DocumentId
    title: Title | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None
    text: documents.Text | None = None
    expected_revision: Revision | None = None


class Delete(DestructiveParams, kw_only=True, frozen=True):
    ids: DocumentIds | None = None
    where: Annotated[Selection, Meta(description="all documents that match")] | None = None


class Download(PastParams, kw_only=True, frozen=True):
    id: DocumentId
    offset: Annotated[int, Meta(ge=0, description="first byte")] = 0
    length: Annotated[int, Meta(ge=1, le=8 << 20, description="most bytes")] = DOWNLOAD_BYTES
    path: (
        Annotated[str, Meta(min_length=1, max_length=4096, description="write the whole to this")]
        | None
    ) = None


class WaitFor(ReadParams, kw_only=True, frozen=True):
    ids: Annotated[DocumentIds, Meta(description="all that are pending if left out")] | None = None


class DocumentText(Document, kw_only=True, frozen=True):
    """A document; `text` is its chunks, joined, from `offset` on."""

    text: str | None = None
    text_length: int | None = None


class Downloaded(Struct, kw_only=True, frozen=True):
    """`content` is base64; with `path` the bytes went to that file instead."""

    id: int
    name: str
    sha256: str
    size_bytes: int
    offset: int
    length: int
    content: str | None
    path: str | None


class Waited(Struct, kw_only=True, frozen=True):
    ready: int


@method(
    "doc.list",
    params=ListDocuments,
    result=list[Document],
    summary="List documents by id, filtered.",
    when_to_use="To see what a knowledge base holds; to find a document by its words use search.",
    errors=["resource.not_found"],
    alias="list",
    examples=[
        Example(params={"limit": 5}, what="the first five"),
        Example(params={"tags": ["release"]}, what="those with a tag"),
        Example(params={"limit": 0}, what="a limit out of range", exit=1),
    ],
)
def list_documents(call: Call, params: ListDocuments) -> Reply:
    after = decode_cursor(params.cursor, int)
    with call.state(params) as state, state.reading() as snapshot:
        embedding = state.embedding
        documents.require_kbs(snapshot.queries, params.kb)
        wanted = documents.filter_of(params, **embedding.ids_with_status(params.status))
        found = snapshot.queries.documents(wanted, after=after, limit=params.limit + 1)
        rows, more = page(found, params.limit)
        return Reply(
            data=[document.shown(row, embedding) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            total=snapshot.queries.count(wanted),
            has_more=more,
            next_cursor=encode_cursor(rows[-1].id) if more else None,
        )


@method(
    "doc.get",
    params=Get,
    result=DocumentText,
    summary="Show one document, with its text on request.",
    when_to_use="To read a document that a search has found, or to learn its revision.",
    errors=["resource.not_found"],
    alias="info",
    positional=["id"],
    examples=[
        Example(params={"id": 1, "text": True}, what="a document and its text"),
        Example(params={"id": 9_999_999}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: Get) -> Reply:
    import msgspec

    with call.state(params) as state, state.reading() as snapshot:
        row = documents.require(snapshot.queries, params.id)
        fields = msgspec.structs.asdict(document.shown(row, state.embedding))
        if params.text:
            text = documents.whole_text(snapshot.queries.chunks_of(row.id))
            fields["text"] = text[params.offset : params.offset + params.length]
            fields["text_length"] = len(text)
        return Reply(data=DocumentText(**fields), seq=snapshot.seq)


@method(
    "doc.update",
    kind="write",
    idempotent=True,
    params=Update,
    result=Document,
    summary="Change a document's title, tags, metadata or text.",
    when_to_use="To correct a document; new text is cut into chunks and indexed afresh. A file's "
    "text is better corrected in the file: after new text, the next ingest brings the file's own "
    "text and title back; tags and metadata stay.",
    errors=["resource.not_found", "operation.failed"],
    positional=["id"],
    examples=[
        Example(params={"id": 1, "tags": ["guide"]}, what="other tags"),
        Example(params={"id": 1, "tags": [], "expected_revision": 99}, what="a stale one", exit=7),
    ],
)
def update(call: Call, params: Update) -> Decide:
    given = [n for n in ("title", "tags", "metadata", "text") if getattr(params, n) is not None]
    if not given:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change.",
            field="$.params",
            valid_values=["title", "tags", "metadata", "text"],
        )
    title = None if params.title is None else clean_name(params.title, field="$.params.title")
    tags = None if params.tags is None else clean_tags(params.tags)
    check_metadata(params.metadata or {})
    content = _new_content(call, params, title)

    def decide(here: Here) -> Decision:
        row = documents.require(here.queries, params.id)
        documents.refuse_others([row], method="doc.update", field="$.params.id")
        documents.check_revision(row, params.expected_revision)
        event, made = revision.changed(
            here,
            row,
            content=content,
            title=title,
            tags=tags,
            metadata=None if params.metadata is None else dict(params.metadata),
            embedding=call.store.embedding,
        )
        return Decision(
            events=[event],
            data=made,
            targets=documents.targets_of([row]),
            changes=[f"new {name}" for name in given],
        )

    return decide


def _new_content(call: Call, params: Update, title: str | None) -> revision.Content | None:
    """Texts of PDF and DOCX documents come back as plain text."""
    if params.text is None:
        return None
    with call.store.reading() as snapshot:
        row = documents.require(snapshot.queries, params.id)
    kind = row.type if row.type in {"markdown", "html", "code"} else "text"
    return content_of_text(call.store, params.text, kind, title or row.title)


@method(
    "doc.delete",
    kind="destructive",
    params=Delete,
    result=Deleted,
    summary="Hide documents from every read; the log keeps their text.",
    when_to_use="When documents are wrong or no longer wanted. It does not erase anything: "
    "doc.restore brings them back, store.purge erases for good.",
    errors=["resource.not_found"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [1]}, what="without a person's approval", exit=10),
        Example(params={"where": {"tags": ["draft"]}, "dry_run": True}, what="only the plan"),
    ],
)
def delete(call: Call, params: Delete) -> Decide:
    if (params.ids is None) == (params.where is None):
        raise KbprocError(
            "input.invalid_params",
            "Give either ids or where.",
            field="$.params",
            valid_values=["ids", "where"],
        )
    if params.where is not None and params.where.is_everything:
        raise KbprocError(
            "input.invalid_params",
            "where names no condition and would delete everything.",
            field="$.params.where",
            valid_values=list(Selection.__struct_fields__),
        )

    def decide(here: Here) -> Decision:
        if params.ids is not None:
            rows = documents.require_all(here.queries, params.ids, field="$.params.ids")
            documents.refuse_others(rows, method="doc.delete", field="$.params.ids")
        else:
            documents.require_kbs(here.queries, params.where.kb if params.where else None)
            rows = here.queries.documents(documents.filter_of(params.where, own_types=False))
        return documents.deletion(here, rows)

    return decide


@method(
    "doc.download",
    params=Download,
    result=Downloaded,
    summary="Return the stored source bytes, in parts, as base64.",
    when_to_use="To get back the original file.",
    errors=["resource.not_found", "resource.already_exists", "path.outside_root"],
    positional=["id"],
    examples=[
        Example(params={"id": 1, "length": 64}, what="the first 64 bytes"),
        Example(params={"id": 1, "path": "copy.md"}, what="the whole, to a new file"),
    ],
)
def download(call: Call, params: Download) -> Reply:
    import base64

    with call.state(params) as state, state.reading() as snapshot:
        row = documents.require(snapshot.queries, params.id)
        seq = snapshot.seq
    data = call.store.blobs.get(row.sha256)
    target = None if params.path is None else _target(call, params.path)
    part = data[params.offset : params.offset + params.length]
    if target is not None:
        paths.write_new(target, data, field="$.params.path")
    result = Downloaded(
        id=row.id,
        name=Path(row.path).name if row.path else row.title,
        sha256=row.sha256,
        size_bytes=len(data),
        offset=0 if target else params.offset,
        length=len(data) if target else len(part),
        content=None if target else base64.b64encode(part).decode(),
        path=str(target) if target else None,
    )
    return Reply(
        data=result, seq=seq, has_more=not target and params.offset + len(part) < len(data)
    )


def _target(call: Call, path: str) -> Path:
    """Writing files is for the shell, or for whoever holds the scope admin."""
    if "admin" not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            "Writing to a path needs the scope admin.",
            field="$.params.path",
            detail={"needed": "admin"},
            hint="Leave path out and read the bytes from content.",
        )
    return paths.locate(path, cwd=call.peer.cwd, root=call.peer.root, field="$.params.path")


@method(
    "doc.wait",
    streams=True,
    params=WaitFor,
    result=Waited,
    summary="Wait until documents are embedded and so found by meaning, too.",
    when_to_use="After adding documents, before a hybrid or vector search that must see them all. "
    "Keyword search finds them at once.",
    errors=["resource.not_found", "operation.failed", "model.unavailable"],
    positional=["ids"],
    examples=[Example(params={"timeout_ms": 60_000}, what="all that are pending")],
)
def wait(call: Call, params: WaitFor) -> Wait:
    store, ids = call.store, params.ids
    with store.reading() as snapshot:
        if ids is not None:
            documents.require_all(snapshot.queries, ids, field="$.params.ids")
        elif call.sight is not None:
            ids = sorted(snapshot.queries.chunk_counts())
    waiting = store.embedding.waiting(ids)
    total = waiting.chunks

    def ready() -> bool:
        left: int = waiting.pending()
        if total:
            done = max(total - left, 0)
            call.emit("progress", ingest.progress("embed", done, total, "chunks"))
        return left == 0

    def expired() -> KbprocError:
        left = waiting.pending()
        return KbprocError(
            "operation.timeout",
            f"{plural(left, 'chunk')} still {'waits' if left == 1 else 'wait'} to be embedded.",
            field="$.params.timeout_ms",
            detail={"pending": left},
        )

    return Wait(
        ready=ready,
        resume=lambda: Reply(data=Waited(ready=waiting.documents)),
        timeout_ms=params.timeout_ms,
        expired=expired,
    )
