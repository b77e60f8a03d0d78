"""doc.history: list what happened to a document, newest first."""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.base.params import PastListParams
from kbproc.base.values import DocumentId
from kbproc.knowledge.history.revisions import DocumentRevision
from kbproc.knowledge.history.timeline import PastRecords, Timeline
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, history_reply


class History(PastListParams, kw_only=True, frozen=True):
    id: DocumentId


@method(
    "doc.history",
    params=History,
    result=list[DocumentRevision],
    layout=("seq", "ts", "actor", "action", "revision", "summary"),
    summary="List what happened to a document, newest first.",
    when_to_use="To see who changed a document, when and how, and which revision to restore; "
    "deleted and purged documents have a history, too.",
    errors=["resource.not_found"],
    positional=["id"],
    examples=[
        Example(params={"id": 1}, what="everything that happened to a document"),
        Example(params={"id": 9_999_999}, what="one that never was", exit=5),
    ],
)
def history(call: Call, params: History) -> Reply:
    with call.state(params) as state, state.reading() as snapshot:
        records = PastRecords(call.store.log, snapshot.seq)
        rows = snapshot.queries.events_of_document(params.id)
        if call.sight is not None and snapshot.queries.document(params.id) is None:
            rows = []
        timeline = Timeline(records, params.id, rows)
        if not timeline.touches:
            raise KbprocError(
                "resource.not_found",
                f"There has never been a document {params.id}.",
                field="$.params.id",
                hint="See doc.list for the documents there are.",
            )
        return history_reply(params, timeline, seq=snapshot.seq)
