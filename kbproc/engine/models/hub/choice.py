"""Chooses the files of a repository that a model is made of, or says why it can't be used.

Only weights in safetensors, graphs in ONNX and texts are taken. A pickle is code in disguise, and
a repository's Python files are code: neither is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.host import installs
from kbproc.engine.models.hub.pins import ModelKind
from kbproc.engine.models.sentence import GRAPHS, VOCABULARY

_DATA = ("_data", ".data")  # the ends of the file beside a graph that holds its weights
_TEXTS = frozenset(
    {
        "config.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    }
)
_OF_MODULE = re.compile(r"\d+_[A-Za-z]+/config\.json")
_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_PICKLED = re.compile(r"(pytorch_model.*\.bin|.*\.(pt|pth|ckpt|pkl))")
# A graph of more would not fit into one file of ONNX.
_MOST_BYTES = 2_000_000_000
_GRAPHED = frozenset({"bert"})


class Choice(Struct, frozen=True, kw_only=True):
    """The files of a model: path → size; and what the model is for."""

    kind: ModelKind
    files: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


def choose(
    repository: str,
    sizes: Mapping[str, int],
    config: Mapping[str, Any],
    *,
    extras: Collection[str],
) -> Choice:
    """Returns the files to take. Raises model.unavailable, which says what is missing.

    `sizes`: all files of the repository. `config`: its config.json. `extras`: those of
    `graphs` and `export` that are installed.
    """
    kind = _kind(repository, sizes, config)
    texts = {file for file in sizes if file in _TEXTS or _OF_MODULE.fullmatch(file)}
    architecture = str(config.get("model_type"))
    if "config.json" not in texts:
        raise _refused(repository, "has no config.json", _USABLE)
    if "tokenizer.json" not in texts:
        if architecture not in _GRAPHED or VOCABULARY not in sizes:
            raise _refused(repository, "has no tokenizer.json", _USABLE)
        texts.add(VOCABULARY)
    weights = _weights(repository, sizes, architecture, extras=extras)
    choice = Choice(kind=kind, files={file: sizes[file] for file in sorted(texts) + weights})
    if choice.bytes > _MOST_BYTES:
        amount = f"{choice.bytes / 1e9:.1f} GB"
        raise _refused(repository, f"weighs {amount}, more than {_MOST_BYTES / 1e9:.0f} GB", _LARGE)
    return choice


_USABLE = (
    "A model needs config.json, tokenizer.json, and model.safetensors (of a BERT) or "
    "onnx/model.onnx (of any other architecture). kbproc model list names some that have them."
)
_LARGE = (
    "Serve it by an endpoint (kbproc model use NAME --kind openai --url URL), or take a "
    "smaller one."
)


def _weights(
    repository: str, sizes: Mapping[str, int], architecture: str, *, extras: Collection[str]
) -> list[str]:
    tensors = sorted(file for file in sizes if _WEIGHTS.fullmatch(file))
    graph = next((file for file in GRAPHS if file in sizes), None)
    if tensors and (architecture in _GRAPHED or (graph is None and "export" in extras)):
        return tensors
    if graph is not None and "graphs" not in extras:
        hint = f"What reads it is one command away: {installs('meaning,graphs')}."
        raise _refused(repository, f"runs by the graph that it ships ({graph})", hint)
    if graph is not None:
        beside = [f"{graph}{end}" for end in _DATA]
        return [graph, *(file for file in beside if file in sizes)]
    if tensors:
        what = f"is of the architecture {architecture}, and ships no graph ({GRAPHS[0]})"
        hint = f"{_USABLE} torch can trace it, too: {installs('meaning,export')}."
        raise _refused(repository, what, hint)
    pickled = sorted(file for file in sizes if _PICKLED.fullmatch(file.rpartition("/")[2]))
    if pickled:
        what = f"has its weights in {pickled[0]} only: a pickle, which may run code when it is read"
        raise _refused(repository, what, _USABLE)
    raise _refused(repository, "has neither safetensors nor a graph in ONNX", _USABLE)


def _kind(repository: str, sizes: Mapping[str, int], config: Mapping[str, Any]) -> ModelKind:
    names = config.get("architectures")
    classes = [str(name) for name in names] if isinstance(names, list) else []
    if not any(name.endswith("ForSequenceClassification") for name in classes):
        return "embedder"
    if "modules.json" in sizes:
        return "embedder"
    labels = config.get("id2label")
    if isinstance(labels, dict) and len(labels) > 1:
        what = f"sorts texts into {len(labels)} classes; a cross-encoder has one label"
        raise _refused(repository, what, "kbproc model list names cross-encoders.")
    return "reranker"


def _refused(repository: str, what: str, hint: str) -> KbprocError:
    return KbprocError(
        "model.unavailable", f"{repository} {what}.", field="$.params.name", hint=hint, lasting=True
    )
