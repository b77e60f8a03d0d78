"""Judgements of an endpoint that speaks `POST …/rerank`, as those of Cohere and Jina do.

Owns: the request, what an answer must hold, and what each failure means to the user.
Refuses to know: where texts come from. The key goes into one header and nowhere else: no message,
no detail, no repr. What the endpoint says of an error is not repeated: it may hold the key.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models.reranking.judgements import Judgements

_BODY_BYTES = 8 << 20
_CONNECT_SECONDS = 10.0
# About so many bytes of text are a token: see answering.interface.about_tokens.
_TOKEN_BYTES = 4
_SETTINGS = "Check rerank.url and rerank.model, and that the server runs."


class _Item(msgspec.Struct, frozen=True):
    index: int
    relevance_score: float


class _Answer(msgspec.Struct, frozen=True):
    results: list[_Item]


_decode = decoder(_Answer).decode


class Endpoint:
    """One connection pool; any number of threads."""

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
        """See Reranker. All texts go out in one request, each cut to what the model reads."""
        question = _head(query, self._bytes // 2)
        room = self._bytes - len(question.encode())
        cut = [_head(text, room) for text in texts]
        return self._judgements.of(question, cut, lambda some: self._ask(question, some))

    def prepare(self) -> None:
        """Loads httpx: that takes a tenth of a second, in which other threads stand still."""
        self._connect()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _ask(self, query: str, texts: list[str]) -> list[float]:
        return _scores(self._post(query, texts), len(texts))

    def _post(self, query: str, texts: list[str]) -> bytes:
        import httpx

        body = {"model": self.name, "query": query, "documents": texts, "top_n": len(texts)}
        deadline = time.monotonic() + self._timeout_s
        try:
            with self._connect().stream("POST", self._url, json=body) as response:
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response.status_code)
                return self._read(response, deadline)
        except httpx.TimeoutException:
            raise self._silent() from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise _unavailable("has no valid address", lasting=True) from None
        except httpx.HTTPError as error:
            # Not str(error): an address may carry a password.
            raise _unavailable(f"did not answer ({type(error).__name__})") from None

    def _read(self, response: Any, deadline: float) -> bytes:
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if len(body) > _BODY_BYTES:
                raise _odd(f"more than {_BODY_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise self._silent()
        return bytes(body)

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
                self._client = httpx.Client(headers=key, timeout=timeout)
        return self._client


def _head(text: str, size: int) -> str:
    """The beginning of a text, as long as fits into so many bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _scores(body: bytes, count: int) -> list[float]:
    """The scores in the order of the texts, each put between 0 and 1."""
    try:
        items = _decode(body).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _odd("no answer of a reranker") from None
    scores = {item.index: item.relevance_score for item in items}
    if len(items) != count or scores.keys() != set(range(count)):
        raise _odd(f"{len(items)} scores for {count} texts, or scores for other texts")
    if not all(map(math.isfinite, scores.values())):
        raise _odd("a score that is not finite")
    return [min(1.0, max(0.0, scores[index])) for index in range(count)]


def _odd(what: str) -> KbprocError:
    return _unavailable(f"sent {what}", lasting=True)


def _unavailable(
    what: str, *, hint: str = _SETTINGS, lasting: bool = False, **detail: Any
) -> KbprocError:
    return KbprocError(
        "model.unavailable",
        f"The rerank endpoint {what}.",
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
