"""Embeddings from an OpenAI-compatible `/v1/embeddings` endpoint.

Owns: the request, its retries, and what each failure means to the user.
Refuses to know: chunks and caches. The key goes into one header and nowhere
else: no message, no detail, no repr.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models import endpoint
from kbproc.models.calibration import AS_IT_IS
from kbproc.models.endpoint import Silence
from kbproc.models.fluency import FLUENT, Fluency
from kbproc.models.interface import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 64
TRIES = 5
# No text is held up longer than this by waiting between tries.
_WAIT_SECONDS = 30.0
# What most endpoints read at least; say max_tokens where it is more.
_MAX_TOKENS = 512


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


_decode_answer = decoder(_Answer).decode


class _Failed(Exception):
    """One try failed. `wait`: seconds the server asks for, None if it will never work."""

    def __init__(self, why: str, hint: str, *, wait: float | None, status: int = 0) -> None:
        super().__init__(why)
        self.hint, self.wait, self.status = hint, wait, status


class OpenAiEmbedder:
    """One connection pool; any number of threads.

    `dim` is asked of the endpoint where it is not given. The fingerprint is
    url, model and dimensions: weights that are changed behind a name cannot be
    noticed from here.
    """

    tokenizer_path: str | None = None
    scale = AS_IT_IS
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
        """Raises model.unavailable where the endpoint must be asked and does not answer."""
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
        """The text's vector, L2-normalised, shape (dim,); raises model.unavailable."""
        return self.embed_many([text])[0]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed(text)

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """Vectors in the order of texts, 64 texts a request; raises model.unavailable."""
        batches = (texts[i : i + BATCH] for i in range(0, len(texts), BATCH))
        return [vector for batch in batches for vector in self._batch(batch)]

    def count_tokens(self, text: str) -> int:
        """An upper estimate, the tokenizer being unknown: three bytes a token."""
        return -(-len(text.encode("utf-8", "replace")) // 3)

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        return FLUENT

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _batch(self, texts: list[str]) -> Iterator[NDArray[np.float32]]:
        """Tries until it works, may never work, or TRIES or _WAIT_SECONDS are used up."""
        left = _WAIT_SECONDS
        for attempt in range(1, TRIES + 1):
            try:
                return self._vectors(self._post(texts), len(texts))
            except _Failed as failed:
                wait = max(failed.wait or 0.0, 0.25 * 2**attempt)
                if failed.wait is None or attempt == TRIES or wait > left:
                    raise self._unavailable(failed, attempt) from None
            left -= wait
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
                silence.heard()
                return b"".join(endpoint.raw(response))
        except endpoint.Packed:
            raise _odd("a packed answer, which nobody has asked for") from None
        except endpoint.TooLong:
            raise _odd("more than 64 MiB") from None
        except httpx.InvalidURL as error:
            raise _Failed(f"has no valid address: {error}", "Check url.", wait=None) from None
        except httpx.HTTPError as error:
            # Not str(error): an address may carry a password.
            kind = type(error).__name__
            raise _Failed(
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

    def _unavailable(self, failed: _Failed, attempts: int) -> KbprocError:
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


def _odd(what: str) -> _Failed:
    return _Failed(f"sent {what}", "Check url, the model's name, and dim.", wait=None)


_HINTS = {
    400: "Check the model's name; texts may be longer than it reads: set max_tokens.",
    401: "Check api_key: the endpoint does not accept it.",
    403: "Check api_key: it may not use this model.",
    404: "Check url and the model's name: the endpoint knows no such thing.",
    429: "The endpoint limits how often it is asked; wait, or raise the limit there.",
}


def _refusal(response: Any) -> _Failed:
    """What a status other than 200 means; 408, 429 and 5xx may pass."""
    status = response.status_code
    passing = status in (408, 429) or status >= 500
    asked = response.headers.get("retry-after", "")
    wait = float(asked) if asked.isdecimal() else 0.0
    hint = _HINTS.get(status, "Check the endpoint's own log.")
    return _Failed(f"answered {status}", hint, wait=wait if passing else None, status=status)
