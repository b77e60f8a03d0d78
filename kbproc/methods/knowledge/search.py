"""knowledge.search: search the knowledge entries by words and by meaning."""

from __future__ import annotations

import msgspec

from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import Tags
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import found_reply
from kbproc.calls.reply import Reply
from kbproc.documents import entry, selection
from kbproc.documents.entry import TaskId
from kbproc.search import params as asked
from kbproc.search import search as service
from kbproc.search.hits import Results
from kbproc.search.layout import as_hits


class SearchEntries(PastParams, kw_only=True, frozen=True):
    query: asked.QueryText
    limit: asked.Limit = 10
    offset: asked.Offset = 0
    mode: asked.Mode = "hybrid"
    kb: asked.Where | None = None
    tags: Tags | None = None
    tags_mode: selection.TagsMode = "all"
    task_id: TaskId | None = None
    owner: entry.Owner | None = None
    created_after: selection.CreatedAfter | None = None
    created_before: selection.CreatedBefore | None = None
    distinct: asked.Distinct = False
    include_superseded: asked.IncludeSuperseded = False
    include_expired: asked.IncludeExpired = False
    min_score: asked.MinScore | None = None
    min_similarity: asked.MinSimilarity | None = None
    min_confidence: asked.MinConfidence | None = None
    ef_search: asked.EfSearch = 64
    fusion: asked.Fusion = "blend"
    snippet_chars: asked.SnippetChars = 240
    explain: asked.Explain = False
    highlight: asked.Highlight = True
    text: asked.Text = True
    text_chars: asked.TextChars | None = None
    budget_tokens: BudgetTokens | None = None

    def left_out(self) -> frozenset[str]:
        return asked.without_text(self.text)


@method(
    "knowledge.search",
    params=SearchEntries,
    result=Results,
    shown=as_hits,
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
    given = msgspec.structs.asdict(params)
    task_id, owner = given.pop("task_id"), given.pop("owner")
    wanted = asked.Search(**given, types=["knowledge"], per_document=1)
    with call.state(params) as state:
        found = service.run(
            state, wanted, now=call.moment(params), centre="first", task_id=task_id, owner=owner
        )
    return found_reply(wanted, found)
