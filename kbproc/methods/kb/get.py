"""kb.get: show one knowledge base."""

from __future__ import annotations

from kbproc.base.params import ReadParams
from kbproc.base.values import KbSlug
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.kb import KnowledgeBase, require, shown


class GetKb(ReadParams, kw_only=True, frozen=True):
    slug: KbSlug


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
        return Reply(data=shown(require(snapshot.queries, params.slug)), seq=snapshot.seq)
