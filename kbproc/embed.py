"""Text to vectors: the Embedder protocol, which model serves, and two implementations.

Owns: ModelSpec (a model as configured), how one is found and loaded, the
reference implementation (sentence-transformers itself), and a model-free one.
Refuses to know: chunks, packs, and when something is embedded.
The one that serves is in embed_onnx.py, the one over HTTP in embed_http.py.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kbproc.embed_http import OpenAiEmbedder
from kbproc.embed_onnx import META, TOKENIZER, OnnxEmbedder, fingerprint, read_meta
from kbproc.errors import KbprocError
from kbproc.onnx_export import (
    DEFAULT_MODEL,
    Source,
    export,
    exported_folder,
    locate,
    require,
    slug,
    weights_sha256,
)

Kind = Literal["onnx", "sentence-transformers", "openai", "hash", "none"]
_HASH_DIM = 64
_HASH_TOKENS = 256


class Embedder(Protocol):
    """Turns a text into a vector; any number of threads may ask at once.

    fingerprint: 32 bytes that change whenever a vector could.
    tokenizer_path: the tokenizer.json that counts as the model does, if any.
    max_tokens: what exceeds it is not seen. batches: many texts at once cost
    less than one by one. Every method may raise model.unavailable.
    """

    name: str
    dim: int
    max_tokens: int
    fingerprint: bytes
    tokenizer_path: str | None
    batches: bool

    def embed(self, text: str) -> NDArray[np.float32]:
        """The text's vector, L2-normalised, shape (dim,)."""
        ...

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        """One vector a text, each as embed gives it."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of the whole text; an upper estimate where the tokenizer is unknown."""
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


def spec_of(settings: dict[str, Any]) -> ModelSpec:
    """The spec that these settings mean; raises input.invalid_params."""
    try:
        return msgspec.convert(settings, ModelSpec)
    except msgspec.ValidationError as error:
        raise KbprocError(
            "input.invalid_params",
            f"The model's settings are not valid: {error}.",
            hint=f"Known settings: {', '.join(ModelSpec.__struct_fields__)}.",
        ) from error


def inspect(spec: ModelSpec, cache: Path) -> ModelInfo:
    """What can be told without loading or asking; raises model.unavailable
    where the model is out of reach."""
    info = ModelInfo(name=spec.name, kind=spec.kind, file_name=f"{slug(spec.name)}-{spec.kind}")
    if spec.kind == "none":
        raise KbprocError("model.unavailable", "No embedding model is configured.")
    if spec.kind == "hash":
        return _described(info, HashEmbedder(dim=spec.dim or _HASH_DIM))
    if spec.kind == "openai":
        if not spec.url:
            raise KbprocError(
                "model.unavailable", "The model's url is not set.", hint="Set the model's url."
            )
        if spec.dim:
            return _described(info, _over_http(spec))
        return _recall(_notes(spec, cache)) or info
    source = locate(spec.name)
    if spec.kind == "onnx":
        return _inspect_export(source, cache)
    require(source)
    return _recall(_notes(spec, cache)) or info


def available(spec: ModelSpec, cache: Path) -> str:
    """`ready`, `needs_export` (load will prepare it first), or `missing: why`."""
    try:
        info = inspect(spec, cache)
    except KbprocError as error:
        return f"missing: {error.message}"
    return "ready" if info.fingerprint else "needs_export"


def known_models(cache: Path) -> list[ModelInfo]:
    """The default model, if it can be had, and every exported one, by name."""
    metas = [read_meta(path.parent) for path in sorted(cache.glob(f"*/{META}"))]
    names = {meta.name: meta for meta in metas if meta}
    known = [
        ModelInfo(
            name=meta.name,
            kind="onnx",
            file_name=slug(meta.name),
            dim=meta.dim,
            max_tokens=meta.max_tokens,
            fingerprint=meta.fingerprint,
        )
        for meta in names.values()
    ]
    if DEFAULT_MODEL not in names and not available(ModelSpec(), cache).startswith("missing"):
        known.append(inspect(ModelSpec(), cache))
    return sorted(known, key=lambda model: model.name)


def load(
    spec: ModelSpec, cache: Path, *, cancelled: Callable[[], bool] = lambda: False
) -> Embedder:
    """The embedder of this spec, exported into `cache` first where that is needed.

    Raises model.unavailable, operation.cancelled.
    """
    info = inspect(spec, cache)
    embedder: Embedder
    if spec.kind == "hash":
        return HashEmbedder(dim=spec.dim or _HASH_DIM)
    if spec.kind == "onnx":
        return OnnxEmbedder(export(locate(spec.name), cache, cancelled=cancelled))
    if spec.kind == "openai":
        embedder = _over_http(spec)
    else:
        source = locate(spec.name)
        embedder = SentenceTransformersEmbedder(source.name, require(source))
    if not info.fingerprint:
        _note(_notes(spec, cache), _described(info, embedder))
    return embedder


def _over_http(spec: ModelSpec) -> OpenAiEmbedder:
    return OpenAiEmbedder(
        name=spec.name,
        url=spec.url or "",
        api_key=spec.api_key,
        dim=spec.dim,
        max_tokens=spec.max_tokens,
        timeout_s=spec.timeout_s,
    )


def _inspect_export(source: Source, cache: Path) -> ModelInfo:
    folder = exported_folder(cache, source)
    info = ModelInfo(name=source.name, kind="onnx", file_name=slug(source.name))
    meta = read_meta(folder)
    if meta is None:
        return _not_exported(info, require(source))
    return msgspec.structs.replace(
        info,
        dim=meta.dim,
        max_tokens=meta.max_tokens,
        fingerprint=meta.fingerprint,
        tokenizer_path=str(folder / TOKENIZER),
    )


def _not_exported(info: ModelInfo, folder: Path) -> ModelInfo:
    """What the model's own files tell of its tokens, so that chunks come out right at once."""
    tokenizer, limits = folder / TOKENIZER, folder / "sentence_bert_config.json"
    try:
        tokens = int(msgspec.json.decode(limits.read_bytes())["max_seq_length"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError):
        return info
    path = str(tokenizer) if tokenizer.is_file() else None
    return msgspec.structs.replace(info, max_tokens=tokens, tokenizer_path=path)


def _described(info: ModelInfo, embedder: Embedder) -> ModelInfo:
    return msgspec.structs.replace(
        info,
        dim=embedder.dim,
        max_tokens=embedder.max_tokens,
        fingerprint=embedder.fingerprint,
        tokenizer_path=embedder.tokenizer_path,
    )


# Models that are not exported leave a note of what loading them has shown.


def _notes(spec: ModelSpec, cache: Path) -> Path:
    """Of these settings and, for a folder, of these files."""
    source = "" if spec.kind == "openai" else locate(spec.name).id
    parts = (spec.kind, spec.name, spec.url, spec.max_tokens, source)
    return cache / f"{slug(spec.name)}-{fingerprint(*parts).hex()[:12]}.json"


def _recall(path: Path) -> ModelInfo | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ModelInfo)
    except (OSError, msgspec.DecodeError):
        return None


def _note(path: Path, info: ModelInfo) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    beside.write_bytes(msgspec.json.encode(info))
    beside.replace(path)


class SentenceTransformersEmbedder:
    """The reference: slow to load (some 6 s) and to run, one text after another."""

    batches = False

    def __init__(self, name: str, folder: Path) -> None:
        import transformers
        from sentence_transformers import SentenceTransformer

        transformers.logging.disable_progress_bar()
        self._model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        self._one_at_a_time = threading.Lock()
        self.name = name
        self.max_tokens = int(self._model.max_seq_length or 512)
        self.dim = len(self.embed("dimensions"))
        modules = (repr(module) for module in self._model)
        self.fingerprint = fingerprint(weights_sha256(folder), *modules, self.max_tokens)
        own = folder / "tokenizer.json"
        self.tokenizer_path = str(own) if own.is_file() else None

    def embed(self, text: str) -> NDArray[np.float32]:
        text = text.encode("utf-8", "replace").decode()
        with self._one_at_a_time:
            vector: NDArray[np.float32] = self._model.encode(
                text, normalize_embeddings=True, show_progress_bar=False
            )
        return vector

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return [self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        text = text.encode("utf-8", "replace").decode()
        with self._one_at_a_time:
            return len(self._model.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    def close(self) -> None:
        self._model = None


_WORD = re.compile(r"\w+")


class HashEmbedder:
    """No model: words and their trigrams, each adding ±1 at a hashed place.

    Texts that share words get near vectors, the same on every machine: integer
    sums, one square root. For tests and speed measurements, not for search.
    """

    name = "hash"
    max_tokens = _HASH_TOKENS
    batches = False
    tokenizer_path: str | None = None

    def __init__(self, *, dim: int = _HASH_DIM) -> None:
        self.dim = dim
        self.fingerprint = fingerprint("hash", 1, dim)

    def embed(self, text: str) -> NDArray[np.float32]:
        sums = np.zeros(self.dim, np.int64)
        for word in _WORD.findall(text.casefold()):
            self._add(sums, word, 2)
            for i in range(len(word) - 2):
                self._add(sums, word[i : i + 3], 1)
        if not sums.any():
            sums[0] = 1
        wide = sums.astype(np.float64)
        vector: NDArray[np.float32] = (wide / np.sqrt((wide * wide).sum())).astype(np.float32)
        return vector

    def _add(self, sums: NDArray[np.int64], feature: str, weight: int) -> None:
        code = zlib.crc32(feature.encode("utf-8", "replace"))
        sums[(code >> 1) % self.dim] += weight if code & 1 else -weight

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return [self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        return len(_WORD.findall(text))

    def close(self) -> None:
        """Nothing is held."""
