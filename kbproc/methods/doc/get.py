"""doc.get: show one document, with its text on request."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import BudgetTokens, PastParams, TextOffset
from kbproc.base.values import DocumentId
from kbproc.engine.sources.blobs import erased_error
from kbproc.knowledge.documents import content, document, lookup
from kbproc.knowledge.documents.document import Document
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, cut


class Get(PastParams, kw_only=True, frozen=True):
    id: DocumentId
    text: Annotated[bool, Meta(description="the whole text as well")] = False
    offset: TextOffset = 0
    length: Annotated[int, Meta(ge=1, le=8 << 20, description="most characters of the text")] = (
        1 << 20
    )
    budget_tokens: BudgetTokens | None = None


class DocumentText(Document, kw_only=True, frozen=True):
    """A document; `text`, from `offset` on: of PDF and DOCX what was read in them, of every
    other type the source's own characters.
    """

    text: str | None = None
    text_length: int | None = None


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
        row = lookup.require(snapshot.queries, params.id)
        fields = msgspec.structs.asdict(document.document_of(row, state.model))
        more = notice = None
        if params.text:
            text, is_whole = content.text_of(call.store.blobs, snapshot.queries, row)
            if not is_whole:
                notice = ["The source's bytes are damaged or missing: the text is what was read."]
            part = text[params.offset : params.offset + params.length]
            part = cut(part, params.budget_tokens)
            fields["text"] = part
            fields["text_length"] = len(text)
            more = params.offset + len(part) < len(text)
        hint = None if row.sha256 else erased_error().message
        data = DocumentText(**fields)
        return Reply(data=data, seq=snapshot.seq, has_more=more, notice=notice, hint=hint)
