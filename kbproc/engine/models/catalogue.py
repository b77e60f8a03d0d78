"""Which embedding models there are, and loading one.

Owns: reading a spec from settings, choosing the embedder that serves it, and remembering
what loading a model that is not exported has shown.
Refuses to know: chunks, packs, and when something is embedded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models.export import export, exported_folder
from kbproc.models.hashing import HASH_DIM, HashEmbedder
from kbproc.models.http import OpenAiEmbedder
from kbproc.models.interface import DEFAULT_MODEL, Embedder, ModelInfo, ModelSpec, fingerprint
from kbproc.models.onnx import META, TOKENIZER, OnnxEmbedder, read_meta
from kbproc.models.weights import PACKED, LocalModel, file_stem, locate, require_folder

# The models that were tried; others are folders of sentence-transformers.
KNOWN = (DEFAULT_MODEL, *PACKED)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a known model.

    `size_bytes`: as exported. `texts_per_second`: of some 150 words each, on one core of the
    machine that measured all of them. `ndcg_at_10`: by meaning alone, per collection.
    """

    size_bytes: int
    texts_per_second: float
    ndcg_at_10: dict[str, float]


_MEASURED = Path(__file__).with_name("measured.json")
_decode_measured = decoder(dict[str, Measured]).decode
_decode_spec = decoder(ModelSpec).decode
_decode_info = decoder(ModelInfo).decode


def spec_of(settings: dict[str, Any]) -> ModelSpec:
    """The spec that these settings mean; raises input.invalid_params."""
    try:
        return _decode_spec(msgspec.json.encode(settings))
    except msgspec.ValidationError as error:
        raise KbprocError(
            "input.invalid_params",
            f"The model's settings are not valid: {error}.",
            hint=f"Known settings: {', '.join(ModelSpec.__struct_fields__)}.",
        ) from error


def inspect(spec: ModelSpec, cache: Path) -> ModelInfo:
    """What is known without loading the model or asking its endpoint.

    Raises model.unavailable where the model is out of reach.
    """
    file_name = f"{file_stem(spec.name)}-{spec.kind}"
    info = ModelInfo(name=spec.name, kind=spec.kind, file_name=file_name)
    if spec.kind == "none":
        raise KbprocError("model.unavailable", "No embedding model is configured.", lasting=True)
    if spec.kind == "hash":
        return _described(info, HashEmbedder(dim=spec.dim or HASH_DIM))
    if spec.kind == "openai":
        if not spec.url:
            raise KbprocError(
                "model.unavailable",
                "The model's url is not set.",
                hint="Set the model's url.",
                lasting=True,
            )
        if spec.dim:
            return _described(info, _over_http(spec))
        return _recalled(_memory_of(spec, cache)) or info
    source = locate(spec.name)
    if spec.kind == "onnx":
        return _inspect_export(source, cache)
    require_folder(source)
    return _recalled(_memory_of(spec, cache)) or info


def available(spec: ModelSpec, cache: Path) -> str:
    """`ready`, `needs_export` (load will prepare it first), or `missing: why`."""
    try:
        info = inspect(spec, cache)
    except KbprocError as error:
        return f"missing: {error.message}"
    return "ready" if info.fingerprint else "needs_export"


def measurements() -> dict[str, Measured]:
    """What was measured of each known model, by name."""
    return _decode_measured(_MEASURED.read_bytes())


def known_models(cache: Path) -> list[ModelInfo]:
    """The known models and every exported one, by name, whether they can be had or not."""
    metas = [read_meta(path.parent) for path in sorted(cache.glob(f"*/{META}"))]
    names = {meta.name: meta for meta in metas if meta}
    known = [
        ModelInfo(
            name=meta.name,
            kind="onnx",
            file_name=file_stem(meta.name),
            dim=meta.dim,
            max_tokens=meta.max_tokens,
            fingerprint=meta.fingerprint,
        )
        for meta in names.values()
    ]
    for name in KNOWN:
        if name not in names:
            try:
                known.append(inspect(ModelSpec(name=name), cache))
            except KbprocError:  # it is not on this machine
                known.append(ModelInfo(name=name, kind="onnx", file_name=file_stem(name)))
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
        return HashEmbedder(dim=spec.dim or HASH_DIM)
    if spec.kind == "onnx":
        return OnnxEmbedder(export(locate(spec.name), cache, cancelled=cancelled))
    if spec.kind == "openai":
        embedder = _over_http(spec)
    else:
        source = locate(spec.name)
        from kbproc.models.reference import SentenceTransformersEmbedder

        embedder = SentenceTransformersEmbedder(source.name, require_folder(source))
    if not info.fingerprint:
        _remember(_memory_of(spec, cache), _described(info, embedder))
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


def _inspect_export(source: LocalModel, cache: Path) -> ModelInfo:
    folder = exported_folder(cache, source)
    info = ModelInfo(name=source.name, kind="onnx", file_name=file_stem(source.name))
    meta = read_meta(folder)
    if meta is None:
        return _not_exported(info, require_folder(source))
    return msgspec.structs.replace(
        info,
        dim=meta.dim,
        max_tokens=meta.max_tokens,
        fingerprint=meta.fingerprint,
        tokenizer_path=str(folder / TOKENIZER),
        scale=meta.scale,
    )


def _not_exported(info: ModelInfo, folder: Path) -> ModelInfo:
    """The model's own files say how many tokens it reads: chunks come out right at once."""
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
        scale=embedder.scale,
    )


def _memory_of(spec: ModelSpec, cache: Path) -> Path:
    """The file that remembers a model of these settings and, for a folder, of these files."""
    source = "" if spec.kind == "openai" else locate(spec.name).id
    parts = (spec.kind, spec.name, spec.url, spec.max_tokens, source)
    return cache / f"{file_stem(spec.name)}-{fingerprint(*parts).hex()[:12]}.json"


def _recalled(path: Path) -> ModelInfo | None:
    try:
        return _decode_info(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _remember(path: Path, info: ModelInfo) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, msgspec.json.encode(info), beside=path.with_suffix(f".{os.getpid()}.tmp"))
