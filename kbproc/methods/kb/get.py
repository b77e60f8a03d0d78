"""kb.get: show one knowledge base."""

from __future__ import annotations

from kbproc.base.params import ReadParams
from kbproc.base.values import KbSlug
from kbproc.knowledge.documents.kb import KnowledgeBase, knowledge_base_of, require
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


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
        return Reply(
            data=knowledge_base_of(require(snapshot.queries, params.slug)), seq=snapshot.seq
        )
