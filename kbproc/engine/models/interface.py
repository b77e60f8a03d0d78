"""What a model is to everybody else: a spec, what is known of it, and an embedder.

Owns: the Embedder protocol, ModelSpec (a model as configured), ModelInfo, and how a model's
fingerprint is made.
Refuses to know: which models there are and how each computes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import msgspec

from kbproc.base.sandbox import stay_alone
from kbproc.models.calibration import AS_IT_IS, Scale
from kbproc.models.fluency import Fluency

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

stay_alone()

DEFAULT_MODEL = "all-MiniLM-L6-v2"

Kind = Literal["onnx", "sentence-transformers", "openai", "hash", "none"]


class Embedder(Protocol):
    """Turns a text into a vector; any number of threads may ask at once.

    `fingerprint`: 32 bytes that change whenever a vector could. `tokenizer_path`: the
    tokenizer.json that counts as the model does, if any. `max_tokens`: the model does not
    see what exceeds it. `scale`: what its cosines mean. `batches`: many texts at once cost less
    than one by one. Every method may raise model.unavailable.
    """

    name: str
    dim: int
    max_tokens: int
    fingerprint: bytes
    tokenizer_path: str | None
    batches: bool
    scale: Scale

    def embed(self, text: str) -> NDArray[np.float32]:
        """The text's vector, L2-normalised, shape (dim,)."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of what is searched for: some models ask for a word before it."""
        ...

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """One vector a text, each as embed gives it."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of the whole text; an upper estimate where the tokenizer is unknown."""
        ...

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        """How well it knows the text; FLUENT where its tokenizer is unknown.

        `is_foreign`: the text is known to be in another language than English.
        """
        ...

    def close(self) -> None: ...


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model as configured; kind `none` is no model.

    name: DEFAULT_MODEL, a folder, a sentence-transformers name in the local
    Hugging Face cache, or what the endpoint calls its model. url, api_key,
    max_tokens, timeout_s: openai only. dim: openai (asked of it if absent) and
    hash.
    """

    kind: Kind = "onnx"
    name: str = DEFAULT_MODEL
    url: str | None = None
    api_key: str | None = None
    dim: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=16)] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0

    def __repr__(self) -> str:
        return f"ModelSpec(kind={self.kind!r}, name={self.name!r})"


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model before it is loaded.

    fingerprint: None until `load` has prepared it once; dim and max_tokens may
    be 0 until then. file_name: a file name of its own, without a suffix.
    """

    name: str
    kind: Kind
    file_name: str
    dim: int = 0
    max_tokens: int = 0
    fingerprint: bytes | None = None
    tokenizer_path: str | None = None
    scale: Scale = AS_IT_IS


def fingerprint(*parts: object) -> bytes:
    """32 bytes that differ wherever a part does."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
