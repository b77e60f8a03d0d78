"""Defines the interface of embedding models: a spec in settings, an info, and an embedder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.hashes import sha256
from kbproc.base.host import stay_alone
from kbproc.base.values import decoder
from kbproc.engine.models.calibration import UNSCALED, Scale

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.models.fluency import Fluency

stay_alone()

DEFAULT_MODEL = "all-MiniLM-L6-v2"

Kind = Literal["onnx", "sentence-transformers", "openai", "hash", "none"]


class Part(NamedTuple):
    """Texts from `first` to before `last`, and their vectors; of a single one maybe an error."""

    first: int
    last: int
    outcome: NDArray[np.float32] | KbprocError


class Filler(Protocol):
    """Embeds many texts where they cost less at once than one by one.

    `at_once`: how many threads should call it at once. `texts`: how many texts each should bring.
    Both change with what is learnt.
    """

    @property
    def at_once(self) -> int: ...
    @property
    def texts(self) -> int: ...

    def embed(self, texts: list[str]) -> Iterator[Part]:
        """Yields parts as their vectors come, in any order. Raises model.unavailable."""
        ...


class Embedder(Protocol):
    """A model that turns texts into vectors; any number of threads may call it at once.

    `fingerprint`: 32 bytes that change whenever a vector could. `tokenizer_path`: the
    tokenizer.json that counts as the model does, if any. `max_tokens`: the model does not read what
    exceeds it. `scale`: the meaning of its cosines. `filler`: None where texts are embedded one by
    one. Every method may raise model.unavailable.
    """

    name: str
    dim: int
    max_tokens: int
    fingerprint: bytes
    tokenizer_path: str | None
    scale: Scale

    @property
    def filler(self) -> Filler | None: ...

    def embed(self, text: str) -> NDArray[np.float32]:
        """Returns the text's vector, L2-normalised, shape (dim,)."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Returns the vector of a query, before which some models need a prompt."""
        ...

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """Returns a vector for each text, the same as `embed` returns."""
        ...

    def count_tokens(self, text: str) -> int:
        """Returns the whole text's tokens; an upper estimate if the tokenizer is unknown."""
        ...

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        """Returns how well the model knows the text; FLUENT if its tokenizer is unknown.

        `is_foreign`: the text is known to be in another language than English.
        """
        ...

    def close(self) -> None: ...


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model as configured; kind `none` is no model.

    name: DEFAULT_MODEL, a folder, a sentence-transformers name in the local
    Hugging Face cache, or what the endpoint calls its model. url, api_key_file,
    max_tokens, timeout_s: openai only. dim: openai (asked of it if absent) and
    hash.
    """

    kind: Kind = "onnx"
    name: str = DEFAULT_MODEL
    url: str | None = None
    api_key_file: str | None = None
    dim: Annotated[int, msgspec.Meta(ge=1, le=65536)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=16)] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0

    def __repr__(self) -> str:
        return f"ModelSpec(kind={self.kind!r}, name={self.name!r})"


_decode_spec = decoder(ModelSpec).decode


def spec_of(settings: dict[str, Any]) -> ModelSpec:
    """Returns the spec in settings; raises input.invalid_params."""
    try:
        return _decode_spec(msgspec.json.encode(settings))
    except msgspec.ValidationError as error:
        raise KbprocError(
            "input.invalid_params",
            f"The model's settings are not valid: {error}.",
            hint=f"Known settings: {', '.join(ModelSpec.__struct_fields__)}.",
        ) from error


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a model that are known before it is loaded.

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
    scale: Scale = UNSCALED


def fingerprint(*parts: object) -> bytes:
    """Returns 32 bytes that differ wherever a part differs."""
    return sha256("\0".join(map(str, parts)).encode()).digest()
