"""doc.create: add a text as a document, or many at once."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.layout import Layout, LayoutRecord, Table
from kbproc.base.params import WriteParams
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.values import Metadata, Tags, Title
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import adding, revision, selection
from kbproc.knowledge.documents.adding import ManyAdded, NewDocument, TextType
from kbproc.knowledge.documents.document import Document
from kbproc.knowledge.documents.selection import ToKb
from kbproc.knowledge.documents.trust import StatedOrigin
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method

_BOTH = "Give title and text of one document, or several documents with a title and a text each."
Documents = Annotated[
    list[NewDocument],
    Meta(
        min_length=1,
        max_length=adding.MOST,
        description="many at once, each with the members of one",
    ),
]


class Create(WriteParams, kw_only=True, frozen=True):
    title: Annotated[Title, Meta(description="title; required for one")] | UnsetType = UNSET
    text: Annotated[selection.Text, Meta(description="its text; required for one")] | UnsetType = (
        UNSET
    )
    kb: ToKb = DEFAULT_KB
    tags: Tags = []
    type: TextType = "text"
    source_id: selection.SourceId | None = None
    metadata: Metadata = {}
    origin: StatedOrigin | UnsetType = UNSET
    documents: Documents | UnsetType = UNSET


def shown(data: dict[str, Any], params: dict[str, Any]) -> Layout:
    if "documents" not in data:
        return LayoutRecord(members=data)
    return Table(rows=data["documents"], columns=("id", "kb", "title", "chunk_count"))


@method(
    "doc.create",
    kind="write",
    undone_by=("events.revert",),
    params=Create,
    result=(Document, ManyAdded),
    summary="Add a text as a document, or many at once.",
    when_to_use="For text that is in no file: a message, a transcript, a report. "
    "Up to 1,000 go in documents: one step, one token, and one that fails keeps no other out.",
    errors=[
        "resource.not_found",
        "resource.already_exists",
        "operation.failed",
        "operation.partial",
    ],
    layout=shown,
    examples=[
        Example(
            params={
                "title": "Release notes 2.1",
                "text": "The importer now reads DOCX files.",
                "tags": ["release"],
            },
            what="a short text",
        ),
        Example(
            params={
                "documents": [
                    {"title": "Monday", "text": "We met.", "source_id": "log/1"},
                    {"title": "Tuesday", "text": "We built."},
                ]
            },
            what="several at once",
        ),
        Example(
            params={"documents": [{"title": "A", "text": ""}]},
            what="an empty one",
            exit=3,
        ),
    ],
)
def create(call: Call, params: Create) -> Decide:
    if params.documents is UNSET:
        return _one(call, params)
    return _many(call, params, params.documents)


def _one(call: Call, params: Create) -> Decide:
    new, keep = _new(params), not params.dry_run
    readied = adding.read(call.library.intake, new, params.kb, at="$.params", keep=keep)

    def decide(here: DecisionState) -> Decision:
        event = adding.Additions(here, [readied]).add(readied)
        status = call.store.model.status_when_new
        document = revision.document_after(event, created_at=here.ts, now=here.ts, status=status)
        return Decision(events=[event], data=document, changes=[adding.in_words(event)])

    return decide


def _new(params: Create) -> NewDocument:
    """Returns the document; raises input.invalid_params if title or text is missing."""
    if params.title is UNSET or params.text is UNSET:
        field = "$.params.title" if params.title is UNSET else "$.params.text"
        raise KbprocError("input.invalid_params", f"{field} is required.", field=field, hint=_BOTH)
    return NewDocument(
        title=params.title,
        text=params.text,
        tags=params.tags,
        type=params.type,
        source_id=params.source_id,
        metadata=params.metadata,
        origin=params.origin,
    )


def _many(call: Call, params: Create, new: list[NewDocument]) -> Decide:
    _refuse_mixture(params)
    additions = adding.read_all(
        call.library.intake,
        new,
        params.kb,
        at="$.params.documents",
        keep=not params.dry_run,
        check=call.check_cancelled,
    )

    def decide(here: DecisionState) -> Decision:
        return adding.add_all(here, additions)

    return decide


def _refuse_mixture(params: Create) -> None:
    """Raises input.invalid_params for a param that each of the documents has itself."""
    for name in NewDocument.__struct_fields__:
        if name != "kb" and getattr(params, name) != getattr(_NOTHING, name):
            raise KbprocError(
                "input.invalid_params",
                f"$.params.{name} and $.params.documents exclude each other.",
                field=f"$.params.{name}",
                hint=f"Say {name} in each of the documents, or leave documents out.",
            )


_NOTHING = Create()
