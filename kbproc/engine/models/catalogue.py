"""Lists the embedding models, reads a model's spec from settings, and loads its embedder.

Facts about a model that is not exported are known once it was loaded; a file remembers them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError
from kbproc.base.host import environment
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.models.interface import Embedder, ModelInfo, ModelSpec, fingerprint
from kbproc.engine.models.onnx import META, TOKENIZER, OnnxEmbedder, read_meta
from kbproc.engine.models.weights import (
    CARRIERS,
    LocalModel,
    Need,
    exported_folder,
    exports,
    file_stem,
    locate,
    require,
    require_runtime,
    require_weights,
)

# Models that kbproc was tried with; any other is a folder of sentence-transformers.
KNOWN_MODELS = tuple(CARRIERS)
KEY_VARIABLE = "KBPROC_MODEL_API_KEY"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a known model.

    `size_bytes`: of the exported model. `texts_per_second`: texts of some 150 words, on one core of
    the machine that measured all models. `ndcg_at_10`: by meaning alone, per collection.
    """

    size_bytes: int
    texts_per_second: float
    ndcg_at_10: dict[str, float]


_ITSELF = Need("the kind sentence-transformers", "export")
_TEXT = "The backup runs each night, and is tested once a month on another machine. " * 11
_SAMPLES = 8  # texts
_MEASURED = Path(__file__).with_name("measured.json")
_decode_measured = decoder(dict[str, Measurement]).decode
_decode_info = decoder(ModelInfo).decode


def inspect(spec: ModelSpec, cache: Path) -> ModelInfo:
    """Returns the facts that are known without loading the model or calling its endpoint.

    Raises model.unavailable if the model is out of reach.
    """
    file_name = f"{file_stem(spec.name)}-{spec.kind}"
    info = ModelInfo(name=spec.name, kind=spec.kind, file_name=file_name)
    if spec.kind == "none":
        raise KbprocError("model.unavailable", "No embedding model is configured.", lasting=True)
    if spec.kind == "hash":
        return _described(info, _by_hashing(spec))
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
    require_weights(source, _ITSELF)
    return _recalled(_memory_of(spec, cache)) or info


def available(spec: ModelSpec, cache: Path) -> str:
    """Returns `ready`, `needs_export` (`load` prepares it first), or `missing: REASON`."""
    try:
        info = inspect(spec, cache)
    except KbprocError as error:
        return f"missing: {error.message}"
    return "ready" if info.fingerprint else "needs_export"


def measurements() -> dict[str, Measurement]:
    """Returns the measurements of each known model by its name."""
    return _decode_measured(_MEASURED.read_bytes())


def known_models(cache: Path) -> list[ModelInfo]:
    """Returns the known models and all exported ones, sorted by name; some may be out of reach."""
    metas = [read_meta(path.parent) for path in sorted(cache.glob(f"*/{META}"))]
    names = {meta.name: meta for meta in metas if meta}
    models = [
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
    for name in KNOWN_MODELS:
        if name not in names:
            try:
                models.append(inspect(ModelSpec(name=name), cache))
            except KbprocError:  # the model is not on this machine
                models.append(ModelInfo(name=name, kind="onnx", file_name=file_stem(name)))
    return sorted(models, key=lambda model: model.name)


def load(
    spec: ModelSpec,
    cache: Path,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    for_few: bool = False,
) -> Embedder:
    """Returns the embedder of this spec; exports it into `cache` first if necessary.

    `for_few`: see OnnxEmbedder. Raises model.unavailable, operation.cancelled.
    """
    info = inspect(spec, cache)
    embedder: Embedder
    if spec.kind == "hash":
        return _by_hashing(spec)
    if spec.kind == "onnx":
        source = locate(spec.name)
        place = exports(source, cache)
        folder = exported_folder(place, source)
        if read_meta(folder) is None:
            from kbproc.engine.models.export import export

            folder = export(source, place, cancelled=cancelled)
        return OnnxEmbedder(folder, for_few=for_few)
    if spec.kind == "openai":
        embedder = _over_http(spec)
    else:
        source = locate(spec.name)
        from kbproc.engine.models.reference import SentenceTransformersEmbedder

        embedder = SentenceTransformersEmbedder(source.name, require_weights(source, _ITSELF))
    if not info.fingerprint:
        _remember(_memory_of(spec, cache), _described(info, embedder))
    return embedder


def speed(spec: ModelSpec, cache: Path) -> float:
    """Returns how many texts of some 150 words the model embeds in a second, on one core.

    Raises model.unavailable.
    """
    import time

    embedder = load(spec, cache)
    try:
        embedder.embed(_TEXT)  # The first one is slower than the others.
        before = time.perf_counter()
        for _ in range(_SAMPLES):
            embedder.embed(_TEXT)
        return round(_SAMPLES / (time.perf_counter() - before), 1)
    finally:
        embedder.close()


def key_of(spec: ModelSpec) -> str | None:
    """Returns the key of an endpoint: the environment's, else the one in the file of the settings.

    Raises model.unavailable for a file that holds none, or that others may read.
    """
    if key := environment().get(KEY_VARIABLE):
        return key
    if spec.api_key_file is None:
        return None
    from kbproc.engine.models.endpoint import key_in

    def wrong(message: str) -> KbprocError:
        hint = f"Correct api_key_file, or set {KEY_VARIABLE}."
        return KbprocError("model.unavailable", message, hint=hint, lasting=True)

    return key_in(spec.api_key_file, wrong)


# Each kind of embedder is imported where it is made, because a store needs only one.


def _by_hashing(spec: ModelSpec) -> Embedder:
    from kbproc.engine.models.hashing import HASH_DIM, HashEmbedder

    return HashEmbedder(dim=spec.dim or HASH_DIM)


def _over_http(spec: ModelSpec) -> Embedder:
    from kbproc.engine.models.http import EndpointEmbedder

    return EndpointEmbedder(
        name=spec.name,
        url=spec.url or "",
        api_key=key_of(spec),
        dim=spec.dim,
        max_tokens=spec.max_tokens,
        timeout_s=spec.timeout_s,
    )


def _inspect_export(source: LocalModel, cache: Path) -> ModelInfo:
    folder = exported_folder(exports(source, cache), source)
    info = ModelInfo(name=source.name, kind="onnx", file_name=file_stem(source.name))
    meta = read_meta(folder)
    if meta is None:
        from kbproc.engine.models.sentence import need

        return _not_exported(info, require(source, need(source)))
    require_runtime(source.name)
    return msgspec.structs.replace(
        info,
        dim=meta.dim,
        max_tokens=meta.max_tokens,
        fingerprint=meta.fingerprint,
        tokenizer_path=str(folder / TOKENIZER),
        scale=meta.scale,
    )


def _not_exported(info: ModelInfo, folder: Path) -> ModelInfo:
    """Adds what the model's own files tell, so that chunks have the right length from the start."""
    tokenizer, limits = folder / TOKENIZER, folder / "sentence_bert_config.json"
    try:
        tokens = int(msgspec.json.decode(limits.read_bytes())["max_seq_length"])
    except (OSError, *NOT_READABLE, KeyError, TypeError, ValueError):
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
    """Returns the file that remembers a model of these settings and, for a folder, its files."""
    source = "" if spec.kind == "openai" else locate(spec.name).id
    parts = (spec.kind, spec.name, spec.url, spec.max_tokens, source)
    return cache / f"{file_stem(spec.name)}-{fingerprint(*parts).hex()[:12]}.json"


def _recalled(path: Path) -> ModelInfo | None:
    try:
        return _decode_info(path.read_bytes())
    except (OSError, *NOT_READABLE):
        return None


def _remember(path: Path, info: ModelInfo) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, msgspec.json.encode(info), beside=path.with_suffix(f".{os.getpid()}.tmp"))
