"""kb.list: list the knowledge bases by slug."""

from __future__ import annotations

from typing import Any

from kbproc.base.layout import Table
from kbproc.base.params import ListParams
from kbproc.knowledge.documents.kb import KnowledgeBase, knowledge_base_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListKbs(ListParams, kw_only=True, frozen=True):
    pass


def as_table(rows: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    """Returns the rows without names that repeat the slug."""
    named = [
        {**row, "name": None if row["name"].lower() == row["slug"] else row["name"]} for row in rows
    ]
    return Table(rows=named, columns=("slug", "name", "description", "updated_at"))


@method(
    "kb.list",
    params=ListKbs,
    result=list[KnowledgeBase],
    layout=as_table,
    summary="List the knowledge bases by slug.",
    when_to_use="To learn which knowledge bases there are before searching or adding.",
    examples=[Example(params={}, what="all of them")],
)
def list_kbs(call: Call, params: ListKbs) -> Reply:
    page = Page(params, str)
    with call.store.reading() as snapshot:
        kbs = snapshot.queries.kbs(page.after, page.read_limit)
        return page.reply(kbs, knowledge_base_of, key=lambda row: row.slug, seq=snapshot.seq)
