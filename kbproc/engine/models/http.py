"""Embeds texts by an OpenAI-compatible `/v1/embeddings` endpoint.

Failures become errors with the reason and a hint; requests that may succeed later are repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from kbproc.base.budget import BYTES_PER_TOKEN, byte_size
from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.base.workers import Backoff
from kbproc.engine.models.calibration import UNSCALED
from kbproc.engine.models.endpoint import Endpoint, Wording
from kbproc.engine.models.fluency import FLUENT, Fluency
from kbproc.engine.models.interface import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 64
TRIES = 5
# Longest time that a text waits between tries.
_WAIT_SECONDS = 30.0
# Tokens that most endpoints read at least; the setting max_tokens tells another number.
_MAX_TOKENS = 512


class _EmbeddingItem(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingsBody(msgspec.Struct):
    data: list[_EmbeddingItem]


_decode_answer = decoder(_EmbeddingsBody).decode


def _wording(model: str) -> Wording:
    return Wording(
        endpoint=f"embeddings endpoint for {model}",
        error="model.unavailable",
        url="url",
        model="the model's name",
        key="api_key",
        timeout="timeout_s",
        too_long="texts may be longer than it reads: set max_tokens",
    )


class OpenAiEmbedder:
    """An embedder with one connection pool, for any number of threads.

    Without `dim` the endpoint is called once to get it. The fingerprint is made of url, model and
    dimensions, because other weights behind the same name can't be noticed from here.
    """

    tokenizer_path: str | None = None
    scale = UNSCALED
    batches = True

    def __init__(
        self,
        *,
        name: str,
        url: str,
        api_key: str | None = None,
        dim: int | None = None,
        max_tokens: int | None = None,
        timeout_s: float = 30.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Raises model.unavailable if `dim` is needed and the endpoint does not answer."""
        self.name = name
        self.max_tokens = max_tokens or _MAX_TOKENS
        self._endpoint = Endpoint(
            url, "/embeddings", api_key=api_key, timeout_s=timeout_s, wording=_wording(name)
        )
        self._sleep = sleep
        self.dim = dim or 0
        if not dim:
            self.dim = len(self.embed("dimensions"))
        self.fingerprint = fingerprint("openai", self._endpoint.url, name, self.dim)

    def embed(self, text: str) -> NDArray[np.float32]:
        """Returns the text's vector, L2-normalised, shape (dim,); raises model.unavailable."""
        return self.embed_many([text])[0]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed(text)

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """Returns vectors in the order of texts, 64 texts a request; raises model.unavailable."""
        batches = (texts[i : i + BATCH] for i in range(0, len(texts), BATCH))
        return [vector for batch in batches for vector in self._batch(batch)]

    def count_tokens(self, text: str) -> int:
        """Returns an upper estimate of three bytes a token, because the tokenizer is unknown."""
        return -(-byte_size(text) // BYTES_PER_TOKEN)

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        return FLUENT

    def close(self) -> None:
        self._endpoint.close()

    def _batch(self, texts: list[str]) -> Iterator[NDArray[np.float32]]:
        """Tries until it succeeds, can't succeed, or TRIES or _WAIT_SECONDS are used up."""
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        body = {"model": self.name, "input": clean, "encoding_format": "float"}
        remaining, backoff = _WAIT_SECONDS, Backoff(0.5, _WAIT_SECONDS)
        for attempt in range(1, TRIES + 1):
            try:
                return self._vectors(self._endpoint.post(body), len(texts))
            except KbprocError as error:
                wait = max((error.retry_after_ms or 0) / 1000, backoff.failed())
                if error.retryable is False or attempt == TRIES or wait > remaining:
                    error.detail |= {"model": self.name, "attempts": attempt}
                    raise
            remaining -= wait
            self._sleep(wait)
        raise AssertionError("unreachable")

    def _vectors(self, body: bytes, count: int) -> Iterator[NDArray[np.float32]]:
        import numpy as np

        try:
            items = _decode_answer(body).data
        except msgspec.DecodeError as error:
            raise self._odd(f"not an embeddings answer: {error}") from None
        items.sort(key=lambda item: item.index)
        if [item.index for item in items] != list(range(count)):
            raise self._odd(f"{len(items)} vectors for {count} texts")
        self.dim = self.dim or len(items[0].embedding)
        if any(len(item.embedding) != self.dim for item in items):
            got = len(items[0].embedding)
            raise self._odd(f"vectors of {got} dimensions where {self.dim} were expected")
        matrix = np.array([item.embedding for item in items], np.float64)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not ((norms > 0) & (norms < np.finfo(np.float32).max)).all():
            raise self._odd("a vector that is zero or not finite")
        return iter((matrix / norms).astype(np.float32))

    def _odd(self, content: str) -> KbprocError:
        hint = "Check url, the model's name, and dim."
        return self._endpoint.unavailable(f"sent {content}", hint=hint, lasting=True)
