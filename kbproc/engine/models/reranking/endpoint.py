"""Judges texts by an endpoint with `POST …/rerank`, such as those of Cohere and Jina.

Failures become errors with the reason and a hint.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.models import endpoint
from kbproc.engine.models.endpoint import Silence
from kbproc.engine.models.reranking.judgements import Judgements

_CONNECT_SECONDS = 10.0
# Bytes of a token, about: see answering.interface.about_tokens.
_TOKEN_BYTES = 4
_SETTINGS = "Check rerank.url and rerank.model, and that the server runs."


class _ScoreItem(msgspec.Struct, frozen=True):
    index: int
    relevance_score: float


class _ScoresBody(msgspec.Struct, frozen=True):
    results: list[_ScoreItem]


_decode = decoder(_ScoresBody).decode


class Endpoint:
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
    ) -> None:
        self.name: str | None = model
        self.candidates = candidates
        self._url = url.rstrip("/").removesuffix("/rerank") + "/rerank"
        self._api_key = api_key
        self._bytes = max_tokens * _TOKEN_BYTES
        self._timeout_s = timeout_s
        self._client: Any = None
        self._opening = threading.Lock()
        self._judgements = Judgements()

    def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """Judges as Reranker.judge does, in one request with all texts, cut to max_tokens."""
        question = _head(query, self._bytes // 2)
        room = self._bytes - len(question.encode())
        cut = [_head(text, room) for text in texts]
        return self._judgements.of(question, cut, lambda new: self._ask(question, new))

    def prepare(self) -> None:
        """Loads httpx in advance, which takes a tenth of a second and stops other threads."""
        self._connect()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _ask(self, query: str, texts: list[str]) -> list[float]:
        return _scores(self._post(query, texts), len(texts))

    def _post(self, query: str, texts: list[str]) -> bytes:
        import httpx

        body = {"model": self.name, "query": query, "documents": texts, "top_n": len(texts)}
        try:
            with (
                Silence(self._timeout_s),
                self._connect().stream("POST", self._url, json=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response.status_code)
                return b"".join(endpoint.raw(response))
        except endpoint.PackedBody:
            raise _odd("a packed answer, which the request did not allow") from None
        except endpoint.BodyTooLong:
            raise _odd(f"more than {endpoint.MOST_BYTES >> 20} MiB") from None
        except httpx.TimeoutException:
            raise self._silent() from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise _unavailable("has no valid address", lasting=True) from None
        except httpx.HTTPError as error:
            # Without str(error), because an address may carry a password.
            raise _unavailable(f"did not answer ({type(error).__name__})") from None

    def _silent(self) -> KbprocError:
        return _unavailable(
            f"did not answer within {self._timeout_s:g} seconds",
            hint="Ask again; where answers take long, raise rerank.timeout_s.",
        )

    def _connect(self) -> Any:
        import httpx

        with self._opening:
            if self._client is None:
                key = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
                seconds = min(self._timeout_s, _CONNECT_SECONDS)
                timeout = httpx.Timeout(self._timeout_s, connect=seconds)
                headers = {**endpoint.HEADERS, **key}
                self._client = endpoint.client(headers=headers, timeout=timeout)
        return self._client


def _head(text: str, size: int) -> str:
    """Returns the beginning of a text that fits into so many bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _scores(body: bytes, count: int) -> list[float]:
    """Returns the scores in the order of the texts, each limited to 0 to 1."""
    try:
        items = _decode(body).results
    except NOT_READABLE:
        raise _odd("no answer of a reranker") from None
    scores = {item.index: item.relevance_score for item in items}
    if len(items) != count or scores.keys() != set(range(count)):
        raise _odd(f"{len(items)} scores for {count} texts, or scores for other texts")
    if not all(map(math.isfinite, scores.values())):
        raise _odd("a score that is not finite")
    return [min(1.0, max(0.0, scores[index])) for index in range(count)]


def _odd(content: str) -> KbprocError:
    return _unavailable(f"sent {content}", lasting=True)


def _unavailable(
    failure: str, *, hint: str = _SETTINGS, lasting: bool = False, **detail: Any
) -> KbprocError:
    return KbprocError(
        "model.unavailable",
        f"The rerank endpoint {failure}.",
        hint=hint,
        lasting=lasting,
        detail=detail,
    )


_HINTS = {
    400: "Check rerank.model; texts may be longer than it reads: lower rerank.max_tokens.",
    401: "Check the key: the endpoint does not accept it.",
    403: "Check the key: it may not use this model.",
    404: "Check rerank.url and rerank.model: the endpoint knows no such thing.",
    429: "The endpoint limits how often it is asked: wait, or raise the limit there.",
}


def _refusal(status: int) -> KbprocError:
    """Returns the error that a status other than 200 means; 408, 429 and 5xx may pass."""
    return _unavailable(
        f"answered {status}",
        hint=_HINTS.get(status, "Look into the endpoint's own log."),
        lasting=not (status in (408, 429) or status >= 500),
        http_status=status,
    )
