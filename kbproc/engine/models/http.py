"""Embeds texts by an OpenAI-compatible `/v1/embeddings` endpoint.

Failures become errors with the reason and a hint; requests that may succeed later are repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.base.workers import Backoff
from kbproc.engine.models import endpoint
from kbproc.engine.models.calibration import UNSCALED
from kbproc.engine.models.endpoint import Silence
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


class _FailedTry(Exception):
    """A failed try. `wait`: seconds that the server asks for; None if no retry can succeed."""

    def __init__(self, why: str, hint: str, *, wait: float | None, status: int = 0) -> None:
        super().__init__(why)
        self.hint, self.wait, self.status = hint, wait, status


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
        self._url = url.rstrip("/").removesuffix("/embeddings") + "/embeddings"
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._client: Any = None
        self._opening = threading.Lock()
        self.dim = dim or 0
        if not dim:
            self.dim = len(self.embed("dimensions"))
        self.fingerprint = fingerprint("openai", self._url, name, self.dim)

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
        return -(-len(text.encode("utf-8", "replace")) // 3)

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        return FLUENT

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _batch(self, texts: list[str]) -> Iterator[NDArray[np.float32]]:
        """Tries until it succeeds, can't succeed, or TRIES or _WAIT_SECONDS are used up."""
        remaining, backoff = _WAIT_SECONDS, Backoff(0.5, _WAIT_SECONDS)
        for attempt in range(1, TRIES + 1):
            try:
                return self._vectors(self._post(texts), len(texts))
            except _FailedTry as failed:
                wait = max(failed.wait or 0.0, backoff.failed())
                if failed.wait is None or attempt == TRIES or wait > remaining:
                    raise self._unavailable(failed, attempt) from None
            remaining -= wait
            self._sleep(wait)
        raise AssertionError("unreachable")

    def _post(self, texts: list[str]) -> bytes:
        import httpx

        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        body = {"model": self.name, "input": clean, "encoding_format": "float"}
        try:
            with (
                Silence(self._timeout_s) as silence,
                self._connect().stream("POST", self._url, json=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response)
                silence.restart()
                return b"".join(endpoint.raw(response))
        except endpoint.PackedBody:
            raise _odd("a packed answer, which the request did not allow") from None
        except endpoint.BodyTooLong:
            raise _odd("more than 64 MiB") from None
        except httpx.InvalidURL as error:
            raise _FailedTry(f"has no valid address: {error}", "Check url.", wait=None) from None
        except httpx.HTTPError as error:
            # Without str(error), because an address may carry a password.
            kind = type(error).__name__
            raise _FailedTry(
                f"did not answer ({kind})", "Check url, and that the server runs.", wait=0.0
            ) from None

    def _connect(self) -> Any:
        with self._opening:
            if self._client is None:
                key = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
                headers = {**endpoint.HEADERS, **key}
                self._client = endpoint.client(headers=headers, timeout=self._timeout_s)
        return self._client

    def _vectors(self, body: bytes, count: int) -> Iterator[NDArray[np.float32]]:
        import numpy as np

        try:
            items = _decode_answer(body).data
        except msgspec.DecodeError as error:
            raise _odd(f"not an embeddings answer: {error}") from None
        items.sort(key=lambda item: item.index)
        if [item.index for item in items] != list(range(count)):
            raise _odd(f"{len(items)} vectors for {count} texts")
        self.dim = self.dim or len(items[0].embedding)
        if any(len(item.embedding) != self.dim for item in items):
            got = len(items[0].embedding)
            raise _odd(f"vectors of {got} dimensions where {self.dim} were expected")
        matrix = np.array([item.embedding for item in items], np.float64)
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not ((norms > 0) & (norms < np.finfo(np.float32).max)).all():
            raise _odd("a vector that is zero or not finite")
        return iter((matrix / norms).astype(np.float32))

    def _unavailable(self, failed: _FailedTry, attempts: int) -> KbprocError:
        detail = {"model": self.name, "attempts": attempts}
        if failed.status:
            detail["status"] = failed.status
        return KbprocError(
            "model.unavailable",
            f"The embeddings endpoint for {self.name} {failed}.",
            hint=failed.hint,
            detail=detail,
            lasting=failed.wait is None,
        )


def _odd(content: str) -> _FailedTry:
    return _FailedTry(f"sent {content}", "Check url, the model's name, and dim.", wait=None)


_HINTS = {
    400: "Check the model's name; texts may be longer than it reads: set max_tokens.",
    401: "Check api_key: the endpoint does not accept it.",
    403: "Check api_key: it may not use this model.",
    404: "Check url and the model's name: the endpoint knows no such thing.",
    429: "The endpoint limits how often it is asked; wait, or raise the limit there.",
}


def _refusal(response: Any) -> _FailedTry:
    """Returns the failure that a status other than 200 means; 408, 429 and 5xx may pass."""
    status = response.status_code
    passing = status in (408, 429) or status >= 500
    retry_after = response.headers.get("retry-after", "")
    wait = float(retry_after) if retry_after.isdecimal() else 0.0
    hint = _HINTS.get(status, "Check the endpoint's own log.")
    return _FailedTry(f"answered {status}", hint, wait=wait if passing else None, status=status)
