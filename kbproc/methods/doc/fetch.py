"""doc.fetch: fetch a web page or file by URL and add it as a document."""

from __future__ import annotations

import time
from typing import Annotated

from msgspec import Meta

from kbproc.base.params import WriteParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import Metadata, Tags, check_metadata, clean_tags
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.documents import content as content_
from kbproc.knowledge.documents import document, lookup, revision
from kbproc.knowledge.documents.document import Document
from kbproc.knowledge.documents.selection import ToKb
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class Fetch(WriteParams, kw_only=True, frozen=True):
    url: Annotated[str, Meta(min_length=8, max_length=4096, description="http or https address")]
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    metadata: Metadata = {}
    max_bytes: Annotated[int, Meta(ge=1, le=256 << 20, description="larger pages are refused")] = (
        16 << 20
    )


def plan(call: Call, params: Fetch) -> Decide:
    from kbproc.engine.sources.web import judge, without_password

    clean_tags(params.tags)
    check_metadata(params.metadata)
    judge(
        params.url,
        allow_private=call.peer.allow_private_addresses,
        approved=call.peer.approved_addresses,
        deadline=time.monotonic() + _seconds(params),
        cancelled=call.cancelled,
    )

    def decide(here: DecisionState) -> Decision:
        lookup.require_kb(here, params.kb)
        return Decision(events=[], data=None, changes=[f"fetch {without_password(params.url)}"])

    return decide


def _seconds(params: Fetch) -> float:
    return 30 if params.timeout_ms is None else params.timeout_ms / 1000


@method(
    "doc.fetch",
    kind="write",
    undone_by=("events.revert",),
    streams=True,
    params=Fetch,
    result=Document,
    plan=plan,
    summary="Add the web page or file at a URL.",
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
    from kbproc.engine.sources.web import fetch_url

    tags = clean_tags(params.tags)
    check_metadata(params.metadata)
    with call.store.reading() as snapshot:
        lookup.require_kbs(snapshot.kbs, params.kb)
    page_ = fetch_url(
        params.url,
        max_bytes=params.max_bytes,
        timeout_s=_seconds(params),
        allow_private=call.peer.allow_private_addresses,
        approved=call.peer.approved_addresses,
        progress=lambda current, total: call.progress("fetch", current, total, params.url),
        cancelled=call.cancelled,
    )
    call.check_cancelled()
    content = content_.read_content(call.library.intake, page_.data, page_.type, page_.name)

    def decide(here: DecisionState) -> Decision:
        lookup.require_kb(here, params.kb)
        same = DocumentFilter(kbs=[params.kb], url=params.url)
        existing = next(iter(here.queries.documents(same, limit=1)), None)
        if existing is not None and existing.sha256 == content.sha256:
            return Decision(events=[], data=document.document_of(existing, call.store.model))
        labels = revision.labels_of(content, existing, tags, params.metadata)
        event = revision.document_written(
            here,
            content,
            kb=params.kb,
            existing=existing,
            ids=revision.Ids(here),
            tags=labels.tags,
            metadata=labels.metadata,
            source_facts=labels.source_facts,
            url=params.url,
            origin="web",
        )
        created = existing.created_at if existing else here.ts
        status = call.store.model.status_when_new
        created_document = revision.document_after(
            event, created_at=created, now=here.ts, status=status
        )
        return Decision(events=[event], data=created_document)

    outcome = write.end(write.item(decide))
    return Reply(data=outcome.data, seq=outcome.seq)
