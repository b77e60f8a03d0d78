"""knowledge.duplicates: group entries that say nearly the same, or the opposite."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from kbproc.base.layout import Table
from kbproc.base.params import PastListParams
from kbproc.base.values import Share
from kbproc.knowledge.documents import lookup, selection
from kbproc.knowledge.search import duplicates
from kbproc.knowledge.search import params as search_params
from kbproc.knowledge.search.duplicates import DuplicateGroup
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class FindDuplicates(PastListParams, kw_only=True, frozen=True):
    kb: search_params.Where | None = None
    min_score: Annotated[
        Share, Meta(description="leave out pairs that are less near; 1 is the same text")
    ] = duplicates.NEAR


def as_table(groups: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    rows = [
        {
            "stays": group["stays"]["id"],
            "title": group["stays"]["title"],
            "other": other["id"],
            "its_title": other["title"],
            "score": other["score"],
            "relation": other["relation"],
            "differs_in": other["differs_in"],
        }
        for group in groups
        for other in group["others"]
    ]
    return Table(rows=rows, columns=list(rows[0]) if rows else None)


@method(
    "knowledge.duplicates",
    params=FindDuplicates,
    result=list[DuplicateGroup],
    layout=as_table,
    summary="Group entries that say nearly the same.",
    when_to_use="To tidy what was learned. Show a person each group: the plan's requests let one "
    "entry supersede the others, and nothing is merged before a person wants that.",
    errors=["resource.not_found"],
    examples=[
        Example(params={}, what="the nearest entries first"),
        Example(params={"min_score": 0.8, "limit": 5}, what="only those that are very near"),
    ],
)
def find_duplicates(call: Call, params: FindDuplicates) -> Reply:
    page = Page(params, str)
    now = call.moment(params)
    with call.state(params) as state:
        state.open_vectors()
        with state.reading() as snapshot:
            lookup.require_kbs(snapshot.kbs, params.kb)
            filter = selection.filter_of(
                params, types=["knowledge"], hide_superseded=True, valid_at=now
            )
            comparison = duplicates.find(
                snapshot, filter, min_score=params.min_score, check=call.check_cancelled
            )
            following = [group for group in comparison.groups if group.key > page.after]
            notice = None
            if comparison.compared < comparison.total:
                part = f"the newest {comparison.compared} of {comparison.total}"
                notice = [f"Only {part} entries were compared."]
            return page.reply(
                following[: page.read_limit],
                lambda group: group,
                key=lambda group: group.key,
                seq=snapshot.seq,
                total=len(comparison.groups),
                notice=notice,
            )
