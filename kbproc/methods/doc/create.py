"""doc.create: add a text as a document."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import Metadata, Tags, Title, check_metadata, clean_name, clean_tags
from kbproc.base.wording import plural
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.documents import lookup, revision, selection
from kbproc.documents.content import content_of_text
from kbproc.documents.document import Document
from kbproc.documents.selection import ToKb
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.decision import Decide, Decision, Here
from kbproc.views.catalog.filters import DocumentFilter

TextType = Annotated[
    Literal["text", "markdown", "html", "code"], Meta(description="how the text is to be read")
]


class Create(WriteParams, kw_only=True, frozen=True):
    title: Title
    text: selection.Text
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    type: TextType = "text"
    source_id: selection.SourceId | None = None
    metadata: Metadata = {}


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
    content = content_of_text(
        call.library.intake, params.text, params.type, title, keep=not params.dry_run
    )

    def decide(here: Here) -> Decision:
        lookup.require_kb(here, params.kb)
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
        status = call.store.model.status_when_new
        made = revision.document_after(event, created_at=here.ts, now=here.ts, status=status)
        size = f"{plural(made.chunk_count, 'chunk')}, {plural(made.size_bytes, 'byte')}"
        return Decision(
            events=[event], data=made, changes=[f"add “{made.title}” to {made.kb}: {size}"]
        )

    return decide


def _refuse_taken(here: Here, params: Create) -> None:
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
