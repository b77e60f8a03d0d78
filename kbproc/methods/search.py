"""search: search by words and by meaning."""

from __future__ import annotations

from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import found_reply
from kbproc.calls.reply import Reply
from kbproc.search import search as service
from kbproc.search.hits import Results
from kbproc.search.layout import as_hits
from kbproc.search.params import Search


@method(
    "search",
    params=Search,
    result=Results,
    shown=as_hits,
    summary="Search by words and by meaning.",
    when_to_use="To find passages that answer a question. data.confidence none says that the "
    "store knows nothing of it, related that the text has to be read first.",
    scope="doc:read",
    more_scopes=["knowledge:read", "note:read"],  # without them it shows no entries, no notes
    errors=["resource.not_found", "model.unavailable"],
    positional=["query"],
    examples=[
        Example(params={"query": "install git"}, what="words and meaning"),
        Example(params={"query": "install git", "mode": "fts", "limit": 3}, what="words only"),
        Example(params={"query": ""}, what="an empty query", exit=1),
    ],
)
def search(call: Call, params: Search) -> Reply:
    with call.state(params) as state:
        found = service.run(state, params, now=call.moment(params))
    return found_reply(params, found)
