"""knowledge.search: search the knowledge entries by words and by meaning."""

from __future__ import annotations

from functools import partial

import msgspec

from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import Tags
from kbproc.knowledge.documents import entry, selection, trust
from kbproc.knowledge.documents.entry import TaskId
from kbproc.knowledge.search import params as search_params
from kbproc.knowledge.search import search as service
from kbproc.knowledge.search.hits import Results, as_hits
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, search_reply


class SearchEntries(PastParams, kw_only=True, frozen=True):
    query: search_params.QueryText
    limit: search_params.Limit = 10
    offset: search_params.Offset = 0
    mode: search_params.Mode = "hybrid"
    kb: search_params.Where | None = None
    tags: Tags | None = None
    tags_mode: selection.TagsMode = "all"
    task_id: TaskId | None = None
    owner: entry.Owner | None = None
    created_after: selection.CreatedAfter | None = None
    created_before: selection.CreatedBefore | None = None
    distinct: search_params.Distinct = False
    include_superseded: search_params.IncludeSuperseded = False
    include_expired: search_params.IncludeExpired = False
    valid_at: entry.ValidAt | None = None
    min_score: search_params.MinScore | None = None
    min_similarity: search_params.MinSimilarity | None = None
    min_confidence: search_params.MinConfidence | None = None
    min_trust: trust.MinTrust | None = None
    only: search_params.Only | None = None
    ef_search: search_params.EfSearch = 64
    fusion: search_params.Fusion = "blend"
    snippet_chars: search_params.SnippetChars = 240
    explain: search_params.Explain = False
    highlight: search_params.Highlight = True
    text: search_params.Text = True
    text_chars: search_params.TextChars | None = None
    budget_tokens: BudgetTokens | None = None

    def left_out(self) -> frozenset[str]:
        return search_params.without_text(self.text)


@method(
    "knowledge.search",
    params=SearchEntries,
    result=Results,
    layout=as_hits,
    summary="Search the knowledge entries by words and by meaning.",
    when_to_use="Before solving something again: has it been found out already? Hits are "
    "entries that hold now; superseded and expired ones come only when asked for.",
    errors=["resource.not_found", "model.unavailable"],
    positional=["query"],
    examples=[
        Example(params={"query": "ci cache"}, what="words and meaning"),
        Example(params={"query": "cache", "min_confidence": 90}, what="only what is quite sure"),
        Example(params={"query": ""}, what="an empty query", exit=1),
    ],
)
def search(call: Call, params: SearchEntries) -> Reply:
    values = msgspec.structs.asdict(params)
    task_id, owner = values.pop("task_id"), values.pop("owner")
    request = search_params.Search(**values, types=["knowledge"], per_document=1)
    with call.state(params) as state:
        answer = service.run(
            state,
            request,
            now=call.moment(params),
            centre="first",
            sources=partial(call.sources, params),
            task_id=task_id,
            owner=owner,
        )
    return search_reply(request, answer)
