"""tag.list: list the tags in use and how many documents carry each."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from kbproc.base.params import PastListParams
from kbproc.knowledge.documents.lookup import require_kbs
from kbproc.knowledge.documents.selection import Kbs, kbs_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListTags(PastListParams, kw_only=True, frozen=True):
    kb: Annotated[Kbs, Meta(description="knowledge base, or several; all if left out")] | None = (
        None
    )
    order: Annotated[
        Literal["name", "count"],
        Meta(description="by name, or the most used first, as the shell has them"),
    ] = "name"


class TagCount(Struct, kw_only=True, frozen=True):
    name: str
    count: int


@method(
    "tag.list",
    params=ListTags,
    result=list[TagCount],
    layout=("name", "count"),
    summary="List the tags in use and how many documents carry each.",
    when_to_use="To learn which tags a search can filter by.",
    scope="doc:read",
    errors=["resource.not_found"],
    alias="tags",
    examples=[
        Example(params={}, what="all tags"),
        Example(params={"order": "count", "limit": 20}, what="the twenty that are used most"),
    ],
)
def list_tags(call: Call, params: ListTags) -> Reply:
    page = Page(params, str)
    with call.state(params) as state, state.reading() as snapshot:
        require_kbs(snapshot.kbs, params.kb)
        rows = snapshot.queries.tags(
            kbs_of(params.kb), page.after, page.read_limit, by_count=params.order == "count"
        )
        return page.reply(
            rows,
            lambda row: TagCount(name=row[0], count=row[1]),
            key=lambda row: row[2],
            seq=snapshot.seq,
        )
