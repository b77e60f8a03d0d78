"""watch.list: list the watched folders, with how far their documents are in step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kbproc.base.layout import Table
from kbproc.base.params import PastListParams
from kbproc.engine.projections.catalog.rows import WatchRow
from kbproc.knowledge.watching.watch import Watch, WatchProgress, watch_of
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListWatches(PastListParams, kw_only=True, frozen=True):
    pass


_COLUMNS = ("path", "kb", "state", "files", "pending", "without_file", "synced_at")
_IDLE = (
    "No process watches now: kbproc serve and kbproc mcp do while they run, and begin with what "
    "has changed meanwhile. kbproc add FOLDER reads a folder once."
)


def as_table(watches: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    rows = [{**dict.fromkeys(_COLUMNS), **members} for members in watches]
    return Table(rows=rows, columns=_COLUMNS)


@method(
    "watch.list",
    scope="doc:read",
    params=ListWatches,
    result=list[Watch],
    layout=as_table,
    summary="List the watched folders.",
    when_to_use="To see which folders are watched, whether changes wait to be read, and what "
    "needs a person: warnings say it.",
    examples=[Example(params={}, what="all of them")],
)
def list_watches(call: Call, params: ListWatches) -> Reply:
    page, progress = Page(params, str), call.library.watches.progress
    with call.state(params) as state, state.reading() as snapshot:
        rows = [
            row
            for row in snapshot.queries.watches()
            if _key(row) > page.after and (call.sight is None or call.sight.sees(row.kb))
        ]
        reply = page.reply(
            rows[: page.read_limit],
            lambda row: watch_of(row, None if params.as_of is not None else progress(row)),
            key=_key,
            seq=snapshot.seq,
        )
        return _with_warnings(reply, [] if params.as_of is not None else map(progress, rows))


def _with_warnings(reply: Reply, states: Iterable[WatchProgress]) -> Reply:
    """Returns the reply with what a person has to know of the folders."""
    progresses = list(states)
    warnings = [line for progress in progresses for line in progress.warnings or ()]
    is_idle = any(progress.state == "idle" for progress in progresses)
    return msgspec.structs.replace(reply, notice=warnings or None, hint=_IDLE if is_idle else None)


def _key(row: WatchRow) -> str:
    return f"{row.path}\n{row.machine}"
