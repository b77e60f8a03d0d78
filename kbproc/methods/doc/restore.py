"""doc.restore: bring deleted documents back, or one document to an earlier revision."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents.selection import DocumentIds
from kbproc.knowledge.history.restore import Restored, restore
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method


class Restore(WriteParams, kw_only=True, frozen=True):
    ids: DocumentIds
    revision: (
        Annotated[int, Meta(ge=1, description="as it was then; for one document only")] | None
    ) = None
    expected_revision: (
        Annotated[int, Meta(ge=1, description="fail if it has changed since; for one document")]
        | None
    ) = None


@method(
    "doc.restore",
    kind="write",
    undone_by=("events.revert",),
    idempotent=True,
    params=Restore,
    result=Restored,
    summary="Restore deleted documents, or an earlier revision of one.",
    when_to_use="After a deletion or a change that was a mistake. Chunks come back under their "
    "old ids, so that citations hold again. What is already so is left alone and listed as "
    "unchanged; what was purged is gone.",
    errors=["resource.not_found", "resource.already_exists"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [1]}, what="one that is not deleted: unchanged"),
        Example(params={"ids": [1], "revision": 1}, what="a document as it was at first"),
        Example(params={"ids": [1], "revision": 99}, what="a revision it never had", exit=5),
        Example(params={"ids": [9_999_999]}, what="one that never was", exit=5),
    ],
)
def restore_documents(call: Call, params: Restore) -> Decide:
    for name in ("revision", "expected_revision"):
        if getattr(params, name) is not None and len(set(params.ids)) > 1:
            raise KbprocError(
                "input.invalid_params",
                f"{name} can be given for one document only.",
                field=f"$.params.{name}",
                hint="Restore the documents one by one.",
            )

    def decide(here: DecisionState) -> Decision:
        return restore(
            here,
            call.store.log,
            call.store.model,
            ids=params.ids,
            revision=params.revision,
            expected_revision=params.expected_revision,
        )

    return decide
