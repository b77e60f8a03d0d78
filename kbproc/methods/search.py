"""search: search by words and by meaning."""

from __future__ import annotations

from functools import partial
from typing import get_args

import msgspec

from kbproc.engine.events.document import CONVERSATION
from kbproc.knowledge.documents.selection import session_filter_of
from kbproc.knowledge.search import search as service
from kbproc.knowledge.search import turns
from kbproc.knowledge.search.hits import Hit, ResultsBeside, as_hits, with_gone_files
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.probability import Confidence
from kbproc.knowledge.search.search import SearchAnswer
from kbproc.knowledge.search.turns import TurnAnswer, TurnHit, TurnSearch
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, fitting, search_reply

_LEVELS = get_args(Confidence)


@method(
    "search",
    params=Search,
    result=ResultsBeside,
    layout=as_hits,
    summary="Search by words and by meaning.",
    when_to_use="To find passages that answer a question. data.confidence none says that the "
    "store knows nothing of it, related that the text has to be read first.",
    scope="doc:read",
    errors=["resource.not_found", "model.unavailable"],
    positional=["query"],
    examples=[
        Example(params={"query": "install git"}, what="words and meaning"),
        Example(params={"query": "install git", "mode": "fts", "limit": 3}, what="words only"),
        Example(params={"query": ""}, what="an empty query", exit=1),
    ],
)
def search(call: Call, params: Search) -> Reply:
    now = call.moment(params)
    with call.state(params) as state:
        answer = service.run(state, params, now=now, sources=partial(call.sources, params))
        turn_answer = None
        if _reaches_turns(params) and "session:read" in call.scopes:
            turn_answer = turns.run(state, _turn_search(params, now))
    if call.sees_files(params):
        answer = msgspec.structs.replace(answer, results=with_gone_files(answer.results))
    if turn_answer is None or not turn_answer.hits:
        reply = search_reply(params, answer)
    else:
        reply = _with_turns(params, answer, turn_answer)
    return _with_standing(reply, answer) if answer.standing else reply


def _with_standing(reply: Reply, answer: SearchAnswer) -> Reply:
    """Returns the reply with the standing instructions, which no budget of tokens leaves out."""
    members = msgspec.structs.asdict(reply.data) | {"standing": answer.standing}
    return msgspec.structs.replace(reply, data=ResultsBeside(**members))


def _reaches_turns(params: Search) -> bool:
    """Returns whether turns of sessions can be hits, which have no tags, no evidence and the like.

    They come with the first page only.
    """
    conditions = (
        params.offset,
        params.tags,
        params.metadata,
        params.path_prefix,
        params.document_ids,
        params.min_similarity,
        params.min_confidence,
        params.min_trust,
        params.only,
    )
    is_of_type = CONVERSATION in (params.types or ())
    return is_of_type and params.mode != "vector" and not any(conditions)


def _turn_search(params: Search, now: str) -> TurnSearch:
    return TurnSearch(
        query=params.query,
        filter=session_filter_of(params),
        now=now,
        is_hybrid=params.mode == "hybrid",
        limit=params.limit,
        min_score=params.min_score,
        snippet_chars=params.snippet_chars,
        highlight=params.highlight,
    )


def _with_turns(params: Search, answer: SearchAnswer, turn_answer: TurnAnswer) -> Reply:
    """Returns the answer with its turns; of both, the best fit the budget of tokens."""
    reply = search_reply(msgspec.structs.replace(params, budget_tokens=None), answer)
    results = answer.results
    items: list[Hit | TurnHit] = sorted(
        [*results.results, *turn_answer.hits], key=lambda hit: -hit.score
    )
    best = items[: fitting(params, params.budget_tokens, items)]
    hits = [hit for hit in best if isinstance(hit, Hit)]
    best_turns = [hit for hit in best if isinstance(hit, TurnHit)]
    is_better = _LEVELS.index(turn_answer.confidence) > _LEVELS.index(results.confidence)
    data = ResultsBeside(
        query=results.query,
        results=hits,
        total_matches=results.total_matches,
        total_is_exact=results.total_is_exact,
        returned=len(hits),
        confidence=turn_answer.confidence if is_better else results.confidence,
        turns=best_turns,
    )
    notice = [*(reply.notice or [])]
    if len(best_turns) < turn_answer.total:
        notice.append(f"{turn_answer.total} turns of sessions match: session.search shows all.")
    return msgspec.structs.replace(
        reply,
        data=data,
        count=len(best),
        has_more=answer.has_more or len(hits) < results.returned,
        hint=None if is_better or not results.results else reply.hint,
        notice=notice or None,
    )
