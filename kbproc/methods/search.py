"""search: search by words and by meaning."""

from __future__ import annotations

from kbproc.knowledge.search import search as service
from kbproc.knowledge.search.hits import Results, as_hits
from kbproc.knowledge.search.params import Search
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, search_reply


@method(
    "search",
    params=Search,
    result=Results,
    layout=as_hits,
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
        answer = service.run(state, params, now=call.moment(params))
    return search_reply(params, answer)
