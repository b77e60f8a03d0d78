"""doc.update: change a document's title, tags, metadata or text."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import (
    DocumentId,
    Metadata,
    Tags,
    Title,
    check_metadata,
    clean_name,
    clean_tags,
)
from kbproc.base.wording import change, plural
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import lookup, revision, selection
from kbproc.knowledge.documents.content import content_of_text
from kbproc.knowledge.documents.document import Document
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method

Revision = Annotated[int, Meta(ge=1, description="fail if it has changed since")]


class Update(WriteParams, kw_only=True, frozen=True):
    id: DocumentId
    title: Title | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None
    text: selection.Text | None = None
    expected_revision: Revision | None = None


@method(
    "doc.update",
    kind="write",
    undone_by=("doc.restore", "events.revert"),
    looks_first=True,
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
    changes = [n for n in ("title", "tags", "metadata", "text") if getattr(params, n) is not None]
    if not changes:
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

    def decide(here: DecisionState) -> Decision:
        row = lookup.require(here.queries, params.id)
        lookup.refuse_others([row], method="doc.update", field="$.params.id")
        lookup.check_revision(row, params.expected_revision)
        event, updated = revision.update_of(
            here,
            row,
            content=content,
            title=title,
            tags=tags,
            metadata=None if params.metadata is None else dict(params.metadata),
            model=call.store.model,
        )
        return Decision(
            events=[event],
            data=updated,
            targets=revision.targets_of([row]),
            changes=_changes(row, updated),
        )

    return decide


def _changes(row: DocumentRow, updated: Document) -> list[str]:
    """Returns the changes; a text's as sizes, because it may be long."""
    lines = change("title", row.title, updated.title)
    lines += change("tags", list(row.tags), updated.tags)
    lines += change("metadata", msgspec.json.decode(row.metadata), updated.metadata)
    if updated.sha256 != row.sha256:
        lines += [
            f"text: {plural(row.chunk_count, 'chunk')}, {plural(row.size_bytes, 'byte')} → "
            f"{plural(updated.chunk_count, 'chunk')}, {plural(updated.size_bytes, 'byte')}"
        ]
    return lines


def _new_content(call: Call, params: Update, title: str | None) -> revision.Content | None:
    """Returns the new text's content; PDF and DOCX documents become plain text."""
    if params.text is None:
        return None
    with call.store.reading() as snapshot:
        row = lookup.require(snapshot.queries, params.id)
    kind = row.type if row.type in {"markdown", "html", "code"} else "text"
    return content_of_text(
        call.library.intake, params.text, kind, title or row.title, keep=not params.dry_run
    )
