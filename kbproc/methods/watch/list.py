"""watch.list: list the watched folders, with how far their documents are in step."""

from __future__ import annotations

from typing import Any

from kbproc.base.layout import Table
from kbproc.base.params import PastListParams
from kbproc.engine.projections.catalog.rows import WatchRow
from kbproc.knowledge.watching.watch import Watch, watch_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListWatches(PastListParams, kw_only=True, frozen=True):
    pass


def as_table(watches: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    return Table(
        rows=watches, columns=("path", "kb", "state", "files", "pending", "gone", "synced_at")
    )


@method(
    "watch.list",
    scope="doc:read",
    params=ListWatches,
    result=list[Watch],
    layout=as_table,
    summary="List the watched folders and how far their documents are in step.",
    when_to_use="To see which folders are watched, whether changes wait to be read, and what "
    "needs a person: warnings say it.",
    examples=[Example(params={}, what="all of them")],
)
def list_watches(call: Call, params: ListWatches) -> Reply:
    page = Page(params, str)
    with call.state(params) as state, state.reading() as snapshot:
        rows = [
            row
            for row in snapshot.queries.watches()
            if _key(row) > page.after and (call.sight is None or call.sight.sees(row.kb))
        ]
        watches = call.library.watches
        return page.reply(
            rows[: page.read_limit],
            lambda row: watch_of(row, None if params.as_of is not None else watches.progress(row)),
            key=_key,
            seq=snapshot.seq,
        )


def _key(row: WatchRow) -> str:
    return f"{row.path}\n{row.machine}"
