"""Judges texts by an endpoint with `POST …/rerank`, such as those of Cohere and Jina.

Failures become errors with the reason and a hint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kbproc.base.budget import beginning
from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.models.endpoint import Endpoint, Wording
from kbproc.engine.models.reranking.judgements import Judgements

# Bytes of a token, about: see answering.interface.about_tokens.
_TOKEN_BYTES = 4
_WORDING = Wording(
    endpoint="rerank endpoint",
    error="model.unavailable",
    url="rerank.url",
    model="rerank.model",
    key="the key",
    timeout="rerank.timeout_s",
    too_long="texts may be longer than it reads: lower rerank.max_tokens",
)


class _ScoreItem(msgspec.Struct, frozen=True):
    index: int
    relevance_score: float


class _ScoresBody(msgspec.Struct, frozen=True):
    results: list[_ScoreItem]


_decode = decoder(_ScoresBody).decode


class EndpointReranker:
    """A reranker with one connection pool, for any number of threads."""

    problem: KbprocError | None = None
    is_ready = True

    def __init__(
        self,
        *,
        url: str,
        model: str,
        api_key: str | None,
        candidates: int,
        max_tokens: int,
        timeout_s: float,
        budget_s: float | None = None,
    ) -> None:
        self.name: str | None = model
        self.candidates = candidates
        self.budget_s = budget_s
        self._endpoint = Endpoint(
            url, "/rerank", api_key=api_key, timeout_s=timeout_s, wording=_WORDING
        )
        self._bytes = max_tokens * _TOKEN_BYTES
        self._judgements = Judgements()

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """Judges as Reranker.judge does, in one request with all texts, cut to max_tokens."""
        question = beginning(query, self._bytes // 2)
        room = self._bytes - len(question.encode())
        cut = [beginning(text, room) for text in texts]
        return self._judgements.of(question, cut, lambda new: self._ask(question, new))

    def judge_within(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        return self.judge(query, texts)

    def prepare(self) -> None:
        self._endpoint.prepare()

    def close(self) -> None:
        self._endpoint.close()

    def _ask(self, query: str, texts: list[str]) -> list[float]:
        body = {"model": self.name, "query": query, "documents": texts, "top_n": len(texts)}
        return self._scores(self._endpoint.post(body), len(texts))

    def _scores(self, body: bytes, count: int) -> list[float]:
        """Returns the scores in the order of the texts, each limited to 0 to 1."""
        try:
            items = _decode(body).results
        except NOT_READABLE:
            raise self._odd("no answer of a reranker") from None
        scores = {item.index: item.relevance_score for item in items}
        if len(items) != count or scores.keys() != set(range(count)):
            raise self._odd(f"{len(items)} scores for {count} texts, or scores for other texts")
        if not all(map(math.isfinite, scores.values())):
            raise self._odd("a score that is not finite")
        return [min(1.0, max(0.0, scores[index])) for index in range(count)]

    def _odd(self, content: str) -> KbprocError:
        return self._endpoint.unavailable(f"sent {content}", lasting=True)
