"""review.edit: change an entry in review, which stays there."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.base.values import Tags, clean_name, clean_tags
from kbproc.base.wording import change
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents import entry, review, revision
from kbproc.knowledge.documents.entry import Entry, EntryId
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class EditEntry(WriteParams, kw_only=True, frozen=True):
    id: EntryId
    title: Annotated[str, Meta(min_length=1, max_length=200, description="new title")] | None = None
    body: (
        Annotated[str, Meta(min_length=1, max_length=entry.MAX_BODY, description="new text")] | None
    ) = None
    tags: Tags | None = None


@method(
    "review.edit",
    kind="write",
    undone_by=("events.revert",),
    idempotent=True,
    looks_first=True,
    params=EditEntry,
    result=Entry,
    summary="Change an entry in review, which stays there.",
    when_to_use="When an entry of review.list is right but for its wording; review.approve lets "
    "everybody find it then. The text of a person's own counts as the person's.",
    errors=["resource.not_found", "resource.conflict"],
    positional=["id"],
    examples=[
        Example(params={"id": 9_999_999, "title": "x"}, what="one that does not exist", exit=5),
    ],
)
def edit(call: Call, params: EditEntry) -> Decide:
    if params.title is None and params.body is None and params.tags is None:
        raise KbprocError(
            "input.invalid_params",
            "There is nothing to change: give title, body or tags.",
            field="$.params",
            valid_values=["title", "body", "tags"],
        )
    with call.store.reading_as(call.review_sight) as snapshot:
        ((row, _),) = review.require_in_review(snapshot.queries, [params.id], field="$.params.id")
    stored = call.store.blobs.get(row.sha256).decode()
    title = row.title if params.title is None else clean_name(params.title, field="$.params.title")
    body = stored if params.body is None else params.body
    tags = list(row.tags) if params.tags is None else clean_tags(params.tags)
    content = review.content_of(call.library.intake, row, body, title, keep=not params.dry_run)

    def decide(here: DecisionState) -> Decision:
        (item,) = review.require_in_review(here.queries, [params.id], field="$.params.id")
        review.check_same([item.row], {row.id: row.revision})
        event = review.written(here, item, content, revision.Ids(here), tags=tags, approved=False)
        edited = replace(
            entry.entry_of(item.row, call.store.model, here.now),
            title=title,
            tags=tags,
            aliases=event.aliases,
            origin=event.origin or item.row.origin,
        )
        text = [] if body == stored else ["text: another"]
        return Decision(
            events=[event],
            data=edited,
            targets=entry.targets_of([item.row]),
            changes=[*change("title", row.title, title), *change("tags", row.tags, tags), *text],
        )

    return decide
