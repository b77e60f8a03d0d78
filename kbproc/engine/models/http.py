"""Embeds texts by an endpoint: single ones for a search, many at the endpoint's own pace.

A search has a connection of its own, and never waits for the requests of a fill. Failures become
errors with the reason and a hint; requests that may succeed later are repeated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kbproc.base.budget import BYTES_PER_TOKEN, byte_size
from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE
from kbproc.base.workers import Backoff
from kbproc.engine.models.apis import Api, Wish, api_of, matrix
from kbproc.engine.models.calibration import UNSCALED
from kbproc.engine.models.endpoint import Endpoint, EndpointError, Wording
from kbproc.engine.models.fluency import FLUENT, Fluency
from kbproc.engine.models.interface import Part, fingerprint
from kbproc.engine.models.pace import Pace, PaceClosed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 64
TRIES = 5
# Longest time that a text waits between tries.
_WAIT_SECONDS = 30.0
# Longest rest that an endpoint may ask of a fill.
_REST_SECONDS = 120.0
# Tokens that most endpoints read at least; the setting max_tokens tells another number.
_MAX_TOKENS = 512
_PROBE = "dimensions"
_TOO_MANY = 429
# Statuses of requests that are too large, or that have a text which the endpoint does not take.
_REFUSALS = frozenset({400, 413, 422})
_FAILED = 500
# llama.cpp answers 500 to a text that is too long.
_TOO_LARGE = re.compile(r"too (?:large|long|many)|exceed|maximum|must (?:have|be) (?:less|at most)")


def _wording(model: str) -> Wording:
    return Wording(
        endpoint=f"embeddings endpoint for {model}",
        error="model.unavailable",
        url="url",
        model="the model's name",
        key="the key, in api_key_file or KBPROC_MODEL_API_KEY",
        timeout="timeout_s",
        too_long="texts may be longer than it reads: set max_tokens",
    )


class _Asker:
    """Puts texts into requests, and answers into vectors, over one connection pool."""

    def __init__(
        self, *, name: str, url: str, api: Api, api_key: str | None, dim: int, timeout_s: float
    ) -> None:
        self.dim = dim
        self._name = name
        self._api = api
        self._is_packed = True  # until the endpoint refuses it
        self._has_packed = False  # the endpoint has taken it
        self.endpoint = Endpoint(
            url, api.path, api_key=api_key, timeout_s=timeout_s, wording=_wording(name)
        )

    def ask(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        """Returns the vectors, L2-normalised, shape (len(texts), dim). Raises model.unavailable."""
        # The first vector tells the dimensions, by which packed ones are read.
        is_packed = self._is_packed and self.dim > 0
        wish = Wish(self._name, texts, is_query, is_packed)
        try:
            answer = self.endpoint.post(self._api.body(wish))
            self._has_packed |= is_packed
        except EndpointError as error:
            if not is_packed or self._has_packed or error.status not in _REFUSALS:
                raise
            answer = self.endpoint.post(self._api.body(wish._replace(is_packed=False)))
            self._is_packed = False
        return self._vectors(answer, len(texts))

    def _vectors(self, answer: bytes, count: int) -> NDArray[np.float32]:
        import numpy as np

        try:
            vectors = matrix(coded := self._api.read(answer), self.dim)
        except (ValueError, *NOT_READABLE) as error:
            raise self._odd(f"not an embeddings answer: {error}") from None
        if len(coded) != count:
            raise self._odd(f"{len(coded)} vectors for {count} texts")
        got = vectors.shape[1] if vectors.ndim == 2 else 0
        self.dim = self.dim or got
        if got != self.dim:
            raise self._odd(f"vectors of {got} dimensions where {self.dim} were expected")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not ((norms > 0) & (norms < np.finfo(np.float32).max)).all():
            raise self._odd("a vector that is zero or not finite")
        unit: NDArray[np.float32] = (vectors / norms).astype(np.float32)
        return unit

    def _odd(self, content: str) -> EndpointError:
        hint = "Check url, the model's name, and dim."
        return self.endpoint.unavailable(f"sent {content}", hint=hint, lasting=True)


class EndpointEmbedder:
    """An embedder over an endpoint, for any number of threads.

    Without `dim` the endpoint is called once to get it. The fingerprint is made of url, model and
    dimensions, because other weights behind the same name can't be noticed from here.
    """

    tokenizer_path: str | None = None
    scale = UNSCALED

    def __init__(
        self,
        *,
        name: str,
        url: str,
        api_key: str | None = None,
        dim: int | None = None,
        max_tokens: int | None = None,
        timeout_s: float = 30.0,
        api: Api | None = None,
        sleep: Callable[[float], object] = time.sleep,
        pace: Pace | None = None,
    ) -> None:
        """Raises model.unavailable if `dim` is needed and the endpoint does not answer."""
        self.name = name
        self.max_tokens = max_tokens or _MAX_TOKENS
        api = api or api_of(url)

        def asker(dim: int) -> _Asker:
            return _Asker(
                name=name, url=url, api=api, api_key=api_key, dim=dim, timeout_s=timeout_s
            )

        self._asker = asker(dim or 0)
        self._sleep = sleep
        self._pace = pace or Pace()
        if not dim:
            self.embed(_PROBE)
        self.dim = self._asker.dim
        roles = ("roles",) if api.tells_queries else ()
        address = self._asker.endpoint.url
        self.fingerprint = fingerprint("openai", address, name, self.dim, *roles)
        self.filler = Filler(asker(self.dim), self._pace)

    def embed(self, text: str) -> NDArray[np.float32]:
        """Returns the text's vector, L2-normalised, shape (dim,); raises model.unavailable."""
        return self.embed_many([text])[0]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._patiently(_clean([text]), is_query=True)[0]
        return vector

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """Returns vectors in the order of texts, 64 texts a request; raises model.unavailable."""
        batches = (texts[i : i + BATCH] for i in range(0, len(texts), BATCH))
        return [
            vector for batch in batches for vector in self._patiently(_clean(batch), is_query=False)
        ]

    def count_tokens(self, text: str) -> int:
        """Returns an upper estimate of three bytes a token, because the tokenizer is unknown."""
        return -(-byte_size(text) // BYTES_PER_TOKEN)

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        return FLUENT

    def close(self) -> None:
        self._pace.close()
        self._asker.endpoint.close()
        self.filler.close()

    def _patiently(self, texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
        """Tries until it succeeds, can't succeed, or TRIES or _WAIT_SECONDS are used up."""
        remaining, backoff = _WAIT_SECONDS, Backoff(0.5, _WAIT_SECONDS)
        with ExitStack() as stack:
            for attempt in range(1, TRIES + 1):
                try:
                    return self._asker.ask(texts, is_query=is_query)
                except EndpointError as error:
                    wait = max((error.retry_after_ms or 0) / 1000, backoff.failed())
                    if error.retryable is False or attempt == TRIES or wait > remaining:
                        error.detail |= {"model": self.name, "attempts": attempt}
                        raise
                    if error.status == _TOO_MANY:  # the next try comes before those of a fill
                        stack.enter_context(self._pace.held())
                remaining -= wait
                self._sleep(wait)
        raise AssertionError("unreachable")


def _clean(texts: list[str]) -> list[str]:
    """Returns the texts without lone surrogates, which have no UTF-8."""
    return [text.encode("utf-8", "replace").decode() for text in texts]


class _Range(NamedTuple):
    """Texts that still need their vectors, and how often the endpoint may fail on them."""

    first: int
    last: int
    tries: int


class Filler:
    """Embeds many texts at the endpoint's pace; any number of threads may do so at once."""

    def __init__(self, asker: _Asker, pace: Pace) -> None:
        self._asker = asker
        self._pace = pace

    @property
    def at_once(self) -> int:
        """How many threads are worth filling."""
        return self._pace.at_once

    @property
    def texts(self) -> int:
        """How many texts a thread should bring: a request of them."""
        return self._pace.texts

    def close(self) -> None:
        self._asker.endpoint.close()

    def embed(self, texts: list[str]) -> Iterator[Part]:
        """Yields parts of the texts as their vectors come; each text is in one part.

        A part of one text may have an error instead: the endpoint refuses this text. Raises
        model.unavailable where the endpoint does not serve at all.
        """
        texts = _clean(texts)
        sizes = [len(text.encode()) for text in texts]
        remaining = [_Range(0, len(texts), TRIES)]
        while remaining:
            first, last, tries = remaining.pop()
            end = first + self._pace.number(sizes[first:last])
            if end < last:
                remaining.append(_Range(end, last, tries))
            part = _Range(first, end, tries)
            try:
                vectors = self._request(texts[first:end], sum(sizes[first:end]))
            except EndpointError as error:
                remaining += self._after(error, part, sum(sizes[first:end]))
                if remaining and remaining[-1].tries == 0:
                    remaining.pop()
                    yield Part(first, end, error)
            else:
                yield Part(first, end, vectors)

    def _request(self, texts: list[str], size: int) -> NDArray[np.float32]:
        try:
            began = self._pace.begin(len(texts))
        except PaceClosed:
            raise KbprocError(
                "model.unavailable", "The endpoint is no longer asked.", lasting=True
            ) from None
        try:
            vectors = self._asker.ask(texts, is_query=False)
            self._pace.answered(len(texts), size, began)
            return vectors
        finally:
            self._pace.end()

    def _after(self, error: EndpointError, part: _Range, size: int) -> list[_Range]:
        """Returns what to ask for after a failed request, in reverse order.

        The last one with no tries is a single text, which the endpoint refuses. Raises the error
        if nothing helps.
        """
        first, last, tries = part
        count = last - first
        wait_s = (error.retry_after_ms or 0) / 1000
        if error.status == _TOO_MANY and error.retryable is not False:
            if wait_s > _REST_SECONDS or not self._pace.limited(wait_s):
                raise error
            return [part]
        is_refused = error.status in _REFUSALS
        is_refused |= (
            error.status == _FAILED and _TOO_LARGE.search(error.reason.lower()) is not None
        )
        if is_refused:
            if count > 1:
                self._pace.refused(count, size)
                return _halves(part, tries)
            return self._blamed(error, first)
        if error.retryable is False or wait_s > _REST_SECONDS:
            raise error
        if tries > 1:
            self._pace.failed(wait_s)
            return [_Range(first, last, tries - 1)]
        if error.status != _FAILED:
            raise error
        # Some servers fail on a text for ever, such as those whose model makes NaN of it.
        return _halves(part, 1) if count > 1 else self._blamed(error, first)

    def _blamed(self, error: EndpointError, text: int) -> list[_Range]:
        """Returns the text with no tries left, if the endpoint takes another; raises else."""
        try:
            self._asker.ask([_PROBE], is_query=False)
        except KbprocError:
            raise error from None
        self._pace.blame_text()
        return [_Range(text, text + 1, 0)]


def _halves(part: _Range, tries: int) -> list[_Range]:
    middle = (part.first + part.last) // 2
    return [_Range(middle, part.last, tries), _Range(part.first, middle, tries)]
