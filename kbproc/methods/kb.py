"""Knowledge bases: create, list, get, update, delete, status, check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import DestructiveParams, ListParams, ReadParams, WriteParams
from kbproc.base.values import KbSlug, clean_name
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.documents import targets_of, unknown_kb
from kbproc.events.document import DocDeleted
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.decision import Decide, Decision, Here, Target
from kbproc.store.state import Freshness

if TYPE_CHECKING:
    from kbproc.views.catalog.queries.queries import Queries
    from kbproc.views.catalog.rows import KbRow

_MOST_LISTED = 100

Name = Annotated[str, Meta(min_length=1, max_length=200, description="name for people")]
Description = Annotated[str, Meta(max_length=2000, description="what belongs in here")]


class KnowledgeBase(Struct, kw_only=True, frozen=True):
    slug: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str


class CreateKb(WriteParams, kw_only=True, frozen=True):
    slug: KbSlug
    name: Name | None = None
    description: Description = ""


class ListKbs(ListParams, kw_only=True, frozen=True):
    pass


class GetKb(ReadParams, kw_only=True, frozen=True):
    slug: KbSlug


class StatusOfKb(ReadParams, kw_only=True, frozen=True):
    slug: KbSlug


class CheckKb(ReadParams, kw_only=True, frozen=True):
    slug: KbSlug


class UpdateKb(WriteParams, kw_only=True, frozen=True):
    slug: KbSlug
    name: Name | None = None
    description: Description | None = None
    expected_revision: Annotated[int, Meta(ge=1, description="fail if it has changed")] | None = (
        None
    )


class DeleteKb(DestructiveParams, kw_only=True, frozen=True):
    slug: KbSlug


class DeletedKb(Struct, kw_only=True, frozen=True):
    slug: str
    documents: int


class KbStatus(Struct, kw_only=True, frozen=True):
    """`source_bytes`: size of the sources, not of the store."""

    slug: str
    documents: int
    chunks: int
    source_bytes: int
    freshness: Freshness


class FailedFile(Struct, kw_only=True, frozen=True):
    path: str
    type: str
    message: str


class StaleFile(Struct, kw_only=True, frozen=True):
    """A document whose file has changed or is gone."""

    document_id: int
    path: str
    state: str


class KbCheck(Struct, kw_only=True, frozen=True):
    """Counts are whole; the lists hold the first hundred."""

    slug: str
    documents: int
    pending: int
    failed: int
    stale: int
    failed_files: list[FailedFile]
    stale_files: list[StaleFile]


def _shown(row: KbRow) -> KnowledgeBase:
    return KnowledgeBase(
        slug=row.slug,
        name=row.name,
        description=row.description,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _require(queries: Queries, slug: str) -> KbRow:
    row = queries.kb(slug)
    if row is None:
        raise unknown_kb(slug, queries.kb_slugs(), field="$.params.slug")
    return row


def _check_sight(call: Call, slug: str) -> None:
    """The same answer whether it exists or not: an agent learns nothing of what it can't see."""
    if call.sight is not None and not call.sight.sees(slug):
        raise KbprocError(
            "auth.insufficient_scope",
            f"{slug!r} is not among this agent's knowledge bases.",
            field="$.params.slug",
            valid_values=call.sight.kbs,
            hint="Whoever looks after the agents adds it with agent.update.",
        )


@method(
    "kb.create",
    kind="write",
    params=CreateKb,
    result=KnowledgeBase,
    summary="Create a knowledge base.",
    when_to_use="To keep a body of documents apart, such as one project's or one customer's.",
    errors=["resource.already_exists"],
    positional=["slug"],
    examples=[
        Example(
            params={"slug": "handbook", "description": "How we work."},
            what="a knowledge base for a handbook",
        ),
        Example(params={"slug": "default"}, what="a slug that is taken", exit=7),
    ],
)
def create(call: Call, params: CreateKb) -> Decide:
    clean_name(params.slug, field="$.params.slug")  # the pattern's $ lets a newline follow
    name = clean_name(params.name or params.slug, field="$.params.name")

    def decide(here: Here) -> Decision:
        _check_sight(call, params.slug)
        if here.queries.kb(params.slug) is not None:
            raise KbprocError(
                "resource.already_exists",
                f"The knowledge base {params.slug!r} exists already.",
                field="$.params.slug",
                hint="Use it as it is, change it with kb.update, or choose another slug.",
            )
        event = KbCreated(slug=params.slug, name=name, description=params.description)
        made = KnowledgeBase(
            slug=params.slug,
            name=name,
            description=params.description,
            revision=1,
            created_at=here.now,
            updated_at=here.now,
        )
        return Decision(events=[event], data=made)

    return decide


@method(
    "kb.list",
    params=ListKbs,
    result=list[KnowledgeBase],
    summary="List the knowledge bases by slug.",
    when_to_use="To learn which knowledge bases there are before searching or adding.",
    examples=[Example(params={}, what="all of them")],
)
def list_kbs(call: Call, params: ListKbs) -> Reply:
    after = decode_cursor(params.cursor, str)
    with call.store.reading() as snapshot:
        rows, more = page(snapshot.queries.kbs(after, params.limit + 1), params.limit)
        return Reply(
            data=[_shown(row) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            has_more=more,
            next_cursor=encode_cursor(rows[-1].slug) if more else None,
        )


@method(
    "kb.get",
    params=GetKb,
    result=KnowledgeBase,
    summary="Show one knowledge base.",
    when_to_use="To read its description and revision.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "default"}, what="the one that is always there"),
        Example(params={"slug": "nowhere"}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetKb) -> Reply:
    with call.store.reading() as snapshot:
        return Reply(data=_shown(_require(snapshot.queries, params.slug)), seq=snapshot.seq)


@method(
    "kb.update",
    kind="write",
    idempotent=True,
    params=UpdateKb,
    result=KnowledgeBase,
    summary="Change a knowledge base's name or description.",
    when_to_use="When its purpose has changed; the slug stays for ever.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[Example(params={"slug": "default", "name": "Everything"}, what="another name")],
)
def update(call: Call, params: UpdateKb) -> Decide:
    if params.name is None and params.description is None:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change: give name or description.",
            field="$.params",
            valid_values=["name", "description"],
        )

    def decide(here: Here) -> Decision:
        row = _require(here.queries, params.slug)
        if params.expected_revision not in {None, row.revision}:
            raise KbprocError(
                "resource.conflict",
                f"{row.slug} is at revision {row.revision}, not {params.expected_revision}.",
                field="$.params.expected_revision",
                detail={"revision": row.revision},
            )
        name = row.name if params.name is None else clean_name(params.name, field="$.params.name")
        text = row.description if params.description is None else params.description
        made = KnowledgeBase(
            slug=row.slug,
            name=name,
            description=text,
            revision=row.revision + 1,
            created_at=row.created_at,
            updated_at=here.now,
        )
        target = Target(kind="kb", id=row.slug, name=row.name, revision=row.revision)
        event = KbUpdated(slug=row.slug, name=name, description=text)
        return Decision(events=[event], data=made, targets=[target])

    return decide


@method(
    "kb.delete",
    kind="destructive",
    params=DeleteKb,
    result=DeletedKb,
    summary="Delete a knowledge base and hide all of its documents.",
    when_to_use="When a whole body of documents is no longer wanted.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"slug": "scratch"}, what="without a person's approval", exit=10),
        Example(params={"slug": "scratch", "dry_run": True}, what="only the plan"),
    ],
)
def delete(call: Call, params: DeleteKb) -> Decide:
    def decide(here: Here) -> Decision:
        from kbproc.views.catalog.filters import DocumentFilter
        from kbproc.views.catalog.reader import EVERYTHING

        row = _require(here.queries, params.slug)
        if row.slug == DEFAULT_KB:
            raise KbprocError(
                "input.invalid_params",
                "The knowledge base 'default' is always there and can't be deleted.",
                field="$.params.slug",
                hint="Delete its documents with doc.delete instead.",
            )
        rows = here.queries.documents(DocumentFilter(kbs=[row.slug]))
        here.queries.see(EVERYTHING)  # entries that may not be read go with it, too
        every = here.queries.document_ids(DocumentFilter(kbs=[row.slug])).tolist()
        own = Target(kind="kb", id=row.slug, name=row.name, revision=row.revision)
        events: list[Event] = [DocDeleted(id=id) for id in every]
        return Decision(
            events=[*events, KbDeleted(slug=row.slug)],
            data=DeletedKb(slug=row.slug, documents=len(rows)),
            targets=[own, *targets_of(rows)],
            changes=[f"delete {row.slug} and hide its {plural(len(rows), 'document')}"],
            # A new one under the same slug is another one.
            bound=[row.created_at, *map(str, every)],
            bulk=bool(every),
        )

    return decide


@method(
    "kb.status",
    params=StatusOfKb,
    result=KbStatus,
    summary="Count a knowledge base's documents and chunks; cheap.",
    when_to_use="To see whether there is anything to search, and whether it is all indexed.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[Example(params={"slug": "default"}, what="counts")],
)
def status(call: Call, params: StatusOfKb) -> Reply:
    with call.store.reading() as snapshot:
        row = _require(snapshot.queries, params.slug)
        documents, chunks, size = snapshot.queries.kb_counts([row.slug]).get(row.slug, (0, 0, 0))
        freshness = call.store.freshness(snapshot)
        data = KbStatus(
            slug=row.slug,
            documents=documents,
            chunks=chunks,
            source_bytes=size,
            freshness=freshness,
        )
        return Reply(data=data, seq=snapshot.seq, freshness=freshness)


@method(
    "kb.check",
    params=CheckKb,
    result=KbCheck,
    summary="Look for files that failed, have changed or are gone.",
    when_to_use="Before relying on a knowledge base, or when an answer looks outdated.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[Example(params={"slug": "default"}, what="failures, pending and stale files")],
)
def check(call: Call, params: CheckKb) -> Reply:
    with call.store.reading() as snapshot:
        row = _require(snapshot.queries, params.slug)
        failures = snapshot.queries.failures(row.slug)
        documents = snapshot.queries.kb_counts([row.slug]).get(row.slug, (0, 0, 0))[0]
        rows = snapshot.queries.paths(row.slug)
        seq = snapshot.seq
    stale = []
    for path, document in rows.items():
        call.check_cancelled()
        if state := _state(Path(path), document.size_bytes, document.sha256):
            stale.append(StaleFile(document_id=document.id, path=path, state=state))
    pending = sum(call.store.embedding.status_of(r.id) == "pending" for r in rows.values())
    data = KbCheck(
        slug=row.slug,
        documents=documents,
        pending=pending,
        failed=len(failures),
        stale=len(stale),
        failed_files=[
            FailedFile(path=path, type=kind, message=message)
            for path, (kind, message, _) in list(failures.items())[:_MOST_LISTED]
        ],
        stale_files=stale[:_MOST_LISTED],
    )
    return Reply(data=data, seq=seq, hint=_hint(data, any(file.state == "gone" for file in stale)))


def _hint(found: KbCheck, gone: bool) -> str | None:
    if gone:
        return "Run doc.ingest again on their folder; with prune it removes what is gone."
    return "Run doc.ingest again on their folder." if found.stale or found.failed else None


def _state(path: Path, size: int, sha256: str) -> str | None:
    """None if the file is as it was."""
    from kbproc.sources.blobs import digest

    try:
        if path.stat().st_size != size:
            return "changed"
        return None if digest(path.read_bytes()) == sha256 else "changed"
    except FileNotFoundError:
        return "gone"
    except OSError:
        return "unreadable"
