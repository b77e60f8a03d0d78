"""Documents: add, and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.base import paths as files
from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams, WriteParams
from kbproc.base.values import KbSlug, Metadata, Tags, Title, check_metadata, clean_name, clean_tags
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents import content as content_
from kbproc.documents import document, documents, ingest, revision
from kbproc.documents.content import content_of_text
from kbproc.documents.document import Document
from kbproc.documents.documents import DocumentIds
from kbproc.documents.ingest import IngestResult
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.decision import Decide, Decision, Here, Request
from kbproc.store.pipeline import LongWrite
from kbproc.store.plan import confirm, plan_of

MAX_FILE_BYTES = 64 << 20

TextType = Annotated[
    Literal["text", "markdown", "html", "code"], Meta(description="how the text is to be read")
]
ToKb = Annotated[KbSlug, Meta(description="knowledge base to put it in")]
Pattern = Annotated[str, Meta(min_length=1, max_length=500, description="such as *.md or docs/**")]


class Ingest(DestructiveParams, kw_only=True, frozen=True):
    paths: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=4096)]],
        Meta(min_length=1, max_length=1000, description="files and folders"),
    ]
    kb: ToKb = DEFAULT_KB
    recursive: Annotated[bool, Meta(description="go into folders within folders")] = True
    glob: Annotated[Pattern, Meta(description="only files whose name or path matches")] | None = (
        None
    )
    exclude: Annotated[
        list[Pattern], Meta(max_length=100, description="patterns to leave out")
    ] = []
    tags: Tags = []
    metadata: Metadata = {}
    prune: Annotated[bool, Meta(description="remove documents whose files are gone")] = False
    max_file_bytes: Annotated[
        int, Meta(ge=1, le=1 << 30, description="larger files are failures")
    ] = MAX_FILE_BYTES


class Create(WriteParams, kw_only=True, frozen=True):
    title: Title
    text: documents.Text
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    type: TextType = "text"
    source_id: documents.SourceId | None = None
    metadata: Metadata = {}


class Fetch(WriteParams, kw_only=True, frozen=True):
    url: Annotated[str, Meta(min_length=8, max_length=4096, description="http or https address")]
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    metadata: Metadata = {}
    max_bytes: Annotated[int, Meta(ge=1, le=256 << 20, description="larger pages are refused")] = (
        16 << 20
    )


class Reparse(WriteParams, kw_only=True, frozen=True):
    ids: DocumentIds | None = None
    kb: Annotated[KbSlug, Meta(description="all documents of this one")] | None = None


class Reparsed(Struct, kw_only=True, frozen=True):
    updated: int
    unchanged: int
    failed: int
    failures: list[ingest.FileFailure]


@method(
    "doc.ingest",
    kind="write",
    streams=True,
    idempotent=True,
    params=Ingest,
    result=IngestResult,
    summary="Read files and folders into a knowledge base.",
    when_to_use="To add files, or to bring a knowledge base up to date: unchanged files cost "
    "nothing, and one bad file never stops the rest.",
    errors=[
        "operation.partial",
        "path.outside_root",
        "resource.not_found",
        "input.confirmation_required",
        "resource.plan_stale",
    ],
    alias="add",
    positional=["paths"],
    examples=[
        Example(params={"paths": ["docs"]}, what="a folder"),
        Example(params={"paths": ["docs"], "dry_run": True}, what="what would be read"),
        Example(params={"paths": ["nowhere"]}, what="a path that does not exist", exit=5),
        Example(params={"paths": ["broken"]}, what="a folder with a damaged PDF", exit=3),
    ],
)
def ingest_files(call: Call, params: Ingest, write: LongWrite) -> Reply:
    work = _work(call, params)
    request = write.request
    with call.store.reading() as snapshot:
        here = Here(snapshot.queries, call.now, snapshot.published.head)
        documents.require_kb(here, work.kb)
        if params.dry_run:
            planned = ingest.plan(call.store, work, here)
            asks = msgspec.structs.replace(request, destructive=bool(planned.targets))
            return Reply(data=None, seq=snapshot.seq, plan=plan_of(asks, planned))
        if work.prune:
            work = _approved(call, work, here, request)
    result = ingest.run(call.store, work, write, emit=call.emit, cancelled=call.cancelled)
    if result.failed:
        error = ingest.partial(result)
        write.fail(error)
        raise error
    outcome = write.end(result)
    hint = None if _found_any(result) else "No file was found there that can be read."
    return Reply(data=outcome.data, seq=outcome.seq, hint=hint)


def _found_any(result: IngestResult) -> bool:
    return bool(result.added + result.updated + result.unchanged + result.removed)


def _work(call: Call, params: Ingest) -> ingest.Work:
    root = call.peer.root
    starts = [_start(call, path, params.prune, i) for i, path in enumerate(params.paths)]
    check_metadata(params.metadata)
    return ingest.Work(
        kb=params.kb,
        starts=starts,
        root=root,
        named=frozenset(starts),
        recursive=params.recursive,
        glob=params.glob,
        exclude=params.exclude,
        max_file_bytes=params.max_file_bytes,
        tags=clean_tags(params.tags),
        metadata=dict(params.metadata),
        prune=params.prune,
    )


def _start(call: Call, path: str, prune: bool, index: int) -> Path:
    """What prune removes need not exist. Raises resource.not_found, input.invalid_params."""
    field, peer = f"$.params.paths[{index}]", call.peer
    full = files.locate(path, cwd=peer.cwd, root=peer.root, field=field)
    if full.is_relative_to(call.store.origin):
        raise KbprocError(
            "input.invalid_params",
            f"{full} lies within the store itself.",
            field=field,
            hint="Notes are found by note.search and search as they are.",
        )
    return full if prune else files.resolve(path, cwd=peer.cwd, root=peer.root, field=field)


def _approved(call: Call, work: ingest.Work, here: Here, request: Request) -> ingest.Work:
    """Removing documents is destructive: it needs the scope and a person's approval."""
    rows = ingest.gone(here, work)
    if not rows:
        return work
    if "admin" not in call.scopes:
        raise KbprocError(
            "auth.insufficient_scope",
            "prune would remove documents and needs the scope admin.",
            field="$.params.prune",
            detail={"needed": "admin"},
        )
    removal = ingest.removal(here, work.kb, rows)
    confirm(msgspec.structs.replace(request, destructive=True), removal)
    return msgspec.structs.replace(work, approved=frozenset(row.id for row in rows))


@method(
    "doc.create",
    kind="write",
    params=Create,
    result=Document,
    summary="Add a text as a document.",
    when_to_use="For text that is not in a file: a message, a transcript, a generated report.",
    errors=["resource.not_found", "resource.already_exists", "operation.failed"],
    examples=[
        Example(
            params={
                "title": "Release notes 2.1",
                "text": "The importer now reads DOCX files.",
                "tags": ["release"],
            },
            what="a short text",
        ),
        Example(params={"title": "", "text": "x"}, what="an empty title", exit=1),
    ],
)
def create(call: Call, params: Create) -> Decide:
    title = clean_name(params.title, field="$.params.title")
    tags = clean_tags(params.tags)
    check_metadata(params.metadata)
    if params.source_id is not None:
        clean_name(params.source_id, field="$.params.source_id")
    content = content_of_text(call.store, params.text, params.type, title)

    def decide(here: Here) -> Decision:
        documents.require_kb(here, params.kb)
        _refuse_taken(here, params)
        event = revision.written(
            here,
            content,
            kb=params.kb,
            existing=None,
            ids=revision.Ids(here),
            tags=tags,
            metadata=dict(params.metadata),
            source_id=params.source_id,
        )
        status = call.store.embedding.status_when_new
        made = revision.of_event(event, created_at=here.now, now=here.now, status=status)
        return Decision(events=[event], data=made)

    return decide


def _refuse_taken(here: Here, params: Create) -> None:
    from kbproc.views.catalog.filters import DocumentFilter

    if params.source_id is None:
        return
    taken = here.queries.documents(
        DocumentFilter(kbs=[params.kb], source_id=params.source_id), limit=1
    )
    if taken:
        raise KbprocError(
            "resource.already_exists",
            f"{params.kb} has a document with source_id {params.source_id!r}: {taken[0].id}.",
            field="$.params.source_id",
            hint=f"Change it with doc.update, id {taken[0].id}.",
            detail={"id": taken[0].id, "revision": taken[0].revision},
        )


@method(
    "doc.fetch",
    kind="write",
    streams=True,
    params=Fetch,
    result=Document,
    summary="Fetch a web page or file by URL and add it as a document.",
    when_to_use="For a public page; fetching the same URL again makes a new revision if it "
    "has changed.",
    errors=[
        "network.failed",
        "network.blocked",
        "input.too_large",
        "input.unsupported_type",
        "operation.failed",
        "resource.not_found",
    ],
    positional=["url"],
    examples=[
        Example(params={"url": "http://127.0.0.1/secrets"}, what="a private address", exit=6),
    ],
)
def fetch(call: Call, params: Fetch, write: LongWrite) -> Reply:
    from kbproc.sources.web import fetch_url, without_password

    tags = clean_tags(params.tags)
    check_metadata(params.metadata)
    with call.store.reading() as snapshot:
        documents.require_kbs(snapshot.queries, params.kb)
    if params.dry_run:
        planned = Decision(events=[], data=None, changes=[f"fetch {without_password(params.url)}"])
        return Reply(data=None, plan=plan_of(write.request, planned))
    page_ = fetch_url(
        params.url,
        max_bytes=params.max_bytes,
        timeout_s=30 if params.timeout_ms is None else params.timeout_ms / 1000,
        allow_private=bool(call.settings.get("allow_private_addresses")),
        progress=lambda current, total: call.emit("progress", _fetched(current, total, params.url)),
        cancelled=call.cancelled,
    )
    call.check_cancelled()
    content = content_.read_content(call.store, page_.data, page_.type, page_.name)

    def decide(here: Here) -> Decision:
        from kbproc.views.catalog.filters import DocumentFilter

        documents.require_kb(here, params.kb)
        same = DocumentFilter(kbs=[params.kb], url=params.url)
        existing = next(iter(here.queries.documents(same, limit=1)), None)
        if existing is not None and existing.sha256 == content.sha256:
            return Decision(events=[], data=document.shown(existing, call.store.embedding))
        event = revision.written(
            here,
            content,
            kb=params.kb,
            existing=existing,
            ids=revision.Ids(here),
            tags=revision.tags_of(content, existing, tags),
            metadata=revision.metadata_of(content, existing, params.metadata),
            url=params.url,
        )
        created = existing.created_at if existing else here.now
        status = call.store.embedding.status_when_new
        made = revision.of_event(event, created_at=created, now=here.now, status=status)
        return Decision(events=[event], data=made)

    outcome = write.end(write.item(decide))
    return Reply(data=outcome.data, seq=outcome.seq)


def _fetched(current: int, total: int | None, url: str) -> dict[str, object]:
    percent = round(100 * current / total, 1) if total else None
    return {
        "stage": "fetch",
        "current": current,
        "total": total,
        "percent": percent,
        "message": url,
        "last": current == total,
    }


@method(
    "doc.reparse",
    kind="write",
    streams=True,
    idempotent=True,
    params=Reparse,
    result=Reparsed,
    summary="Cut documents into chunks afresh from their stored bytes.",
    when_to_use="After an upgrade with a better parser, or a change to a model of another length.",
    errors=["resource.not_found", "operation.partial"],
    positional=["ids"],
    examples=[Example(params={"ids": [1]}, what="one document")],
)
def reparse(call: Call, params: Reparse, write: LongWrite) -> Reply:
    from kbproc.views.catalog.filters import DocumentFilter

    with call.store.reading() as snapshot:
        documents.require_kbs(snapshot.queries, params.kb)
        if params.ids is not None:
            rows = documents.require_all(snapshot.queries, params.ids, field="$.params.ids")
        else:
            only = None if params.kb is None else [params.kb]
            rows = snapshot.queries.documents(DocumentFilter(kbs=only))
        if params.dry_run:
            change = f"parse {plural(len(rows), 'document')} again"
            targets = documents.targets_of(rows)
            planned = Decision(events=[], data=None, targets=targets, changes=[change])
            return Reply(data=None, seq=snapshot.seq, plan=plan_of(write.request, planned))
    updated, failures = 0, []
    for number, row in enumerate(rows, 1):
        call.check_cancelled(updated=updated)
        try:
            updated += content_.reparse_one(call.store, row, write)
        except KbprocError as error:
            failures.append(
                ingest.FileFailure(path=row.title, type=error.type, message=error.message)
            )
        call.emit("progress", ingest.progress("reparse", number, len(rows), row.title))
    result = Reparsed(
        updated=updated,
        unchanged=len(rows) - updated - len(failures),
        failed=len(failures),
        failures=failures[:100],
    )
    if failures:
        partial = KbprocError(
            "operation.partial",
            f"{len(failures)} of {plural(len(rows), 'document')} could not be parsed again.",
            detail=msgspec.to_builtins(result),
        )
        write.fail(partial)
        raise partial
    outcome = write.end(result)
    return Reply(data=outcome.data, seq=outcome.seq)
