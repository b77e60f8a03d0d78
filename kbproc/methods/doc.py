"""Documents: add, read, change, hide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kbproc import documents as docs
from kbproc import events as ev
from kbproc import files, ingest
from kbproc.commit import Decide, Decision, Here, LongWrite, confirm, plan_of
from kbproc.documents import Deleted, Selection, decode_cursor, encode_cursor, page
from kbproc.errors import KbprocError
from kbproc.ingest import IngestResult
from kbproc.model import (
    DEFAULT_KB,
    DestructiveParams,
    Document,
    DocumentId,
    IndexStatus,
    KbSlug,
    ListParams,
    Metadata,
    ReadParams,
    Tags,
    Title,
    WriteParams,
    check_metadata,
    clean_name,
    clean_tags,
)
from kbproc.registry import Call, Example, Reply, Wait, method

MAX_TEXT = 4 << 20
MAX_FILE_BYTES = 64 << 20
DOWNLOAD_BYTES = 1 << 20

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="the document's text")]
TextType = Annotated[
    Literal["text", "markdown", "html", "code"], Meta(description="how the text is to be read")
]
Ids = Annotated[
    list[DocumentId], Meta(min_length=1, max_length=1000, description="documents, by id")
]
Revision = Annotated[int, Meta(ge=1, description="fail if it has changed since")]
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
    text: Text
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    type: TextType = "text"
    source_id: docs.SourceId | None = None
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
    ids: Ids | None = None
    kb: Annotated[KbSlug, Meta(description="all documents of this one")] | None = None


class ListDocuments(ListParams, kw_only=True, frozen=True):
    kb: Annotated[docs.Kbs, Meta(description="one or several; all if left out")] | None = None
    types: docs.Types | None = None
    tags: Tags | None = None
    tags_mode: docs.TagsMode = "all"
    status: Annotated[IndexStatus, Meta(description="of embedding")] | None = None
    path_prefix: docs.PathPrefix | None = None
    url: docs.Url | None = None
    source_id: docs.SourceId | None = None
    title_contains: docs.TitlePart | None = None
    created_after: docs.CreatedAfter | None = None
    created_before: docs.CreatedBefore | None = None


class Get(ReadParams, kw_only=True, frozen=True):
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
    text: Text | None = None
    expected_revision: Revision | None = None


class Delete(DestructiveParams, kw_only=True, frozen=True):
    ids: Ids | None = None
    where: Annotated[Selection, Meta(description="all documents that match")] | None = None


class Download(ReadParams, kw_only=True, frozen=True):
    id: DocumentId
    offset: Annotated[int, Meta(ge=0, description="first byte")] = 0
    length: Annotated[int, Meta(ge=1, le=8 << 20, description="most bytes")] = DOWNLOAD_BYTES
    path: (
        Annotated[str, Meta(min_length=1, max_length=4096, description="write the whole to this")]
        | None
    ) = None


class WaitFor(ReadParams, kw_only=True, frozen=True):
    ids: Annotated[Ids, Meta(description="all that are pending if left out")] | None = None


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


class Reparsed(Struct, kw_only=True, frozen=True):
    updated: int
    unchanged: int
    failed: int
    failures: list[ingest.FileFailure]


class Waited(Struct, kw_only=True, frozen=True):
    ready: int


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
        docs.require_kb(here, work.kb)
        if params.dry_run:
            planned = ingest.plan(call.store, work, here)
            return Reply(data=None, seq=snapshot.seq, plan=plan_of(request, planned))
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
    starts = [
        files.resolve(path, cwd=call.peer.cwd, root=root, field=f"$.params.paths[{i}]")
        if not params.prune
        else files.locate(path, cwd=call.peer.cwd, root=root, field=f"$.params.paths[{i}]")
        for i, path in enumerate(params.paths)
    ]
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


def _approved(call: Call, work: ingest.Work, here: Here, request: object) -> ingest.Work:
    """Removing documents is destructive: it needs the scope and a person's approval."""
    import msgspec

    rows = ingest.gone(here, work)
    if not rows:
        return work
    if "admin" not in call.peer.scopes:
        raise KbprocError(
            "auth.insufficient_scope", "prune would remove documents and needs the scope admin.",
            field="$.params.prune", detail={"needed": "admin"},
        )  # fmt: skip
    removal = Decision(
        events=[ev.DocDeleted(id=row.id) for row in rows],
        data=None,
        targets=docs.targets_of(rows),
        changes=[f"remove {row.path}" for row in rows],
        bulk=docs.is_bulk(here, work.kb, len(rows)),
    )
    confirm(msgspec.structs.replace(request, destructive=True), removal)  # type: ignore[arg-type, type-var]
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
    content = _content_of_text(call, params.text, params.type, title)

    def decide(here: Here) -> Decision:
        docs.require_kb(here, params.kb)
        _refuse_taken(here, params)
        event = docs.written(
            here,
            content,
            kb=params.kb,
            existing=None,
            ids=docs.Ids(here),
            tags=tags,
            metadata=dict(params.metadata),
            source_id=params.source_id,
        )
        status = call.store.embedding.status_when_new
        made = docs.of_event(event, created_at=here.now, now=here.now, status=status)
        return Decision(events=[event], data=made)

    return decide


def _content_of_text(call: Call, text: str, type: str, title: str) -> docs.Content:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise KbprocError(
            "input.invalid_params", "text holds half a surrogate pair.", field="$.params.text"
        ) from None
    return ingest.read_content(call.store, data, type, title, title=title)


def _refuse_taken(here: Here, params: Create) -> None:
    from kbproc.views.queries import DocumentFilter

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
    from kbproc.fetch import fetch_url

    tags = clean_tags(params.tags)
    check_metadata(params.metadata)
    if params.dry_run:
        planned = Decision(events=[], data=None, changes=[f"fetch {params.url}"])
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
    content = ingest.read_content(call.store, page_.data, page_.type, page_.name)

    def decide(here: Here) -> Decision:
        from kbproc.views.queries import DocumentFilter

        docs.require_kb(here, params.kb)
        same = DocumentFilter(kbs=[params.kb], url=params.url)
        existing = next(iter(here.queries.documents(same, limit=1)), None)
        if existing is not None and existing.sha256 == content.sha256:
            return Decision(events=[], data=docs.shown(existing, call.store.embedding))
        event = docs.written(
            here,
            content,
            kb=params.kb,
            existing=existing,
            ids=docs.Ids(here),
            tags=list(dict.fromkeys([*content.tags, *tags]))[:16],
            metadata={**content.metadata, **params.metadata},
            url=params.url,
        )
        created = existing.created_at if existing else here.now
        status = call.store.embedding.status_when_new
        made = docs.of_event(event, created_at=created, now=here.now, status=status)
        return Decision(events=[event], data=made)

    outcome = write.end(write.item(decide))
    return Reply(data=outcome.data, seq=outcome.seq)


def _fetched(current: int, total: int | None, url: str) -> dict[str, object]:
    percent = round(100 * current / total, 1) if total else None
    return {"stage": "fetch", "current": current, "total": total, "percent": percent,
            "message": url, "last": current == total}  # fmt: skip


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
    from kbproc.views.queries import DocumentFilter

    with call.store.reading() as snapshot:
        docs.require_kbs(snapshot.queries, params.kb)
        if params.ids is not None:
            rows = docs.require_all(snapshot.queries, params.ids, field="$.params.ids")
        else:
            only = None if params.kb is None else [params.kb]
            rows = snapshot.queries.documents(DocumentFilter(kbs=only))
        if params.dry_run:
            planned = Decision(events=[], data=None, targets=docs.targets_of(rows),
                               changes=[f"parse {len(rows)} documents again"])  # fmt: skip
            return Reply(data=None, seq=snapshot.seq, plan=plan_of(write.request, planned))
    updated, failures = 0, []
    for number, row in enumerate(rows, 1):
        call.check_cancelled(updated=updated)
        try:
            updated += ingest.reparse_one(call.store, row, write)
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
        import msgspec

        partial = KbprocError(
            "operation.partial",
            f"{len(failures)} of {len(rows)} documents could not be parsed again.",
            detail=msgspec.to_builtins(result),
        )
        write.fail(partial)
        raise partial
    outcome = write.end(result)
    return Reply(data=outcome.data, seq=outcome.seq)


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
    embedding = call.store.embedding
    with call.store.reading() as snapshot:
        docs.require_kbs(snapshot.queries, params.kb)
        wanted = docs.filter_of(params, **embedding.ids_with_status(params.status))
        found = snapshot.queries.documents(wanted, after=after, limit=params.limit + 1)
        rows, more = page(found, params.limit)
        return Reply(
            data=[docs.shown(row, embedding) for row in rows],
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

    with call.store.reading() as snapshot:
        row = docs.require(snapshot.queries, params.id)
        fields = msgspec.structs.asdict(docs.shown(row, call.store.embedding))
        if params.text:
            text = docs.whole_text(snapshot.queries.chunks_of(row.id))
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
    when_to_use="To correct a document; new text is cut into chunks and indexed afresh. The next "
    "ingest of a changed file replaces its text again.",
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
            "input.invalid_params", "There is nothing to change.",
            field="$.params", valid_values=["title", "tags", "metadata", "text"],
        )  # fmt: skip
    title = None if params.title is None else clean_name(params.title, field="$.params.title")
    tags = None if params.tags is None else clean_tags(params.tags)
    check_metadata(params.metadata or {})
    content = _new_content(call, params, title)

    def decide(here: Here) -> Decision:
        row = docs.require(here.queries, params.id)
        docs.check_revision(row, params.expected_revision)
        event, made = docs.changed(
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
            targets=docs.targets_of([row]),
            changes=[f"new {name}" for name in given],
        )

    return decide


def _new_content(call: Call, params: Update, title: str | None) -> docs.Content | None:
    """Texts of PDF and DOCX documents come back as plain text."""
    if params.text is None:
        return None
    with call.store.reading() as snapshot:
        row = docs.require(snapshot.queries, params.id)
    kind = row.type if row.type in {"markdown", "html", "code"} else "text"
    return _content_of_text(call, params.text, kind, title or row.title)


@method(
    "doc.delete",
    kind="destructive",
    params=Delete,
    result=Deleted,
    summary="Hide documents from every read; the log keeps their text.",
    when_to_use="When documents are wrong or no longer wanted. It does not erase anything.",
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
            "input.invalid_params", "Give either ids or where.",
            field="$.params", valid_values=["ids", "where"],
        )  # fmt: skip
    if params.where == Selection():
        raise KbprocError(
            "input.invalid_params", "where names no condition and would delete everything.",
            field="$.params.where", valid_values=list(Selection.__struct_fields__),
        )  # fmt: skip

    def decide(here: Here) -> Decision:
        if params.ids is not None:
            rows = docs.require_all(here.queries, params.ids, field="$.params.ids")
        else:
            docs.require_kbs(here.queries, params.where.kb if params.where else None)
            rows = here.queries.documents(docs.filter_of(params.where))
        return docs.deletion(here, rows)

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

    with call.store.reading() as snapshot:
        row = docs.require(snapshot.queries, params.id)
        seq = snapshot.seq
    data = call.store.blobs.get(row.sha256)
    target = None if params.path is None else _target(call, params.path)
    part = data[params.offset : params.offset + params.length]
    if target is not None:
        files.write_new(target, data, field="$.params.path")
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
    if "admin" not in call.peer.scopes:
        raise KbprocError(
            "auth.insufficient_scope", "Writing to a path needs the scope admin.",
            field="$.params.path", detail={"needed": "admin"},
            hint="Leave path out and read the bytes from content.",
        )  # fmt: skip
    return files.locate(path, cwd=call.peer.cwd, root=call.peer.root, field="$.params.path")


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
    store = call.store
    if params.ids is not None:
        with store.reading() as snapshot:
            docs.require_all(snapshot.queries, params.ids, field="$.params.ids")
    waiting = store.embedding.waiting(params.ids)
    total = waiting.chunks

    def ready() -> bool:
        left = waiting.pending()
        if total:
            done = max(total - left, 0)
            call.emit("progress", ingest.progress("embed", done, total, "chunks"))
        return left == 0

    def expired() -> KbprocError:
        return KbprocError(
            "operation.timeout",
            f"{waiting.pending()} chunks are still waiting to be embedded.",
            field="$.params.timeout_ms",
            detail={"pending": waiting.pending()},
        )

    return Wait(
        ready=ready,
        resume=lambda: Reply(data=Waited(ready=waiting.documents)),
        timeout_ms=params.timeout_ms,
        expired=expired,
    )
