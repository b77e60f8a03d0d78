"""Reads the folder of a sentence-transformers model.

It tells how tokens are pooled, how many the model reads, its prompts, and which parts of it only
sentence-transformers itself can compute.

The files are those that sentence-transformers 2 to 6 write: modules.json, a config.json of each
module, sentence_bert_config.json, config_sentence_transformers.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.values import NOT_READABLE, decoder, object_in
from kbproc.engine.models.bert import read_config
from kbproc.engine.models.calibration import Prompts
from kbproc.engine.models.weights import LocalModel, Need

# Graphs that a folder may ship, the best first.
GRAPHS = ("onnx/model.onnx", "model.onnx", "onnx/model_quantized.onnx")
# A mean over √n instead of n serves as mean: it has the same direction, and vectors are normalised.
_POOLINGS = {
    **dict.fromkeys(("mean", "mean_tokens", "mean_sqrt_len_tokens"), "mean"),
    **dict.fromkeys(("cls", "cls_token"), "cls"),
    **dict.fromkeys(("max", "max_tokens"), "max"),
}
# A BERT whose folder holds no tokenizer.json has this file.
VOCABULARY = "vocab.txt"
_FLAG = "pooling_mode_"
_MOST_TOKENS = 512
_decode_modules = decoder(list[dict[str, Any]]).decode


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """The facts in a model's folder. `pooling`: mean, cls or max.

    `max_tokens`: special tokens included. `graph`: the one that the folder ships, which is used.
    `obstacle`: the parts of the model that only sentence-transformers can compute; None if none.
    """

    pooling: str = "mean"
    max_tokens: int = _MOST_TOKENS
    lowercase: bool = False
    prompts: Prompts = Prompts()
    graph: str | None = None
    obstacle: str | None = None


def read_sentence(folder: Path) -> Sentence:
    """Reads a model's folder. Without modules.json it is a plain encoder, pooled by mean."""
    pooling, obstacles = _modules(folder)
    sentence_config = object_in(folder / "sentence_bert_config.json")
    config = object_in(folder / "config.json")
    tokenizer_config = object_in(folder / "tokenizer_config.json")
    named = object_in(folder / "config_sentence_transformers.json").get("prompts")
    limits = (sentence_config.get("max_seq_length"), tokenizer_config.get("model_max_length"))
    stated = next((int(limit) for limit in limits if isinstance(limit, int | float)), _MOST_TOKENS)
    places = config.get("max_position_embeddings")
    to_bert = obstacles_to_bert(folder)
    graph = shipped_graph(folder) if to_bert else None
    if graph is None:
        obstacles += to_bert
    return Sentence(
        pooling=pooling,
        max_tokens=min(stated, places) if isinstance(places, int) else stated,
        lowercase=sentence_config.get("do_lower_case") is True,
        prompts=Prompts.of(named if isinstance(named, dict) else None),
        graph=graph,
        obstacle=", ".join(obstacles) or None,
    )


def shipped_graph(folder: Path) -> str | None:
    """Returns the best graph that a folder ships; None without one."""
    return next((graph for graph in GRAPHS if (folder / graph).is_file()), None)


def need(source: LocalModel) -> Need | None:
    """Returns the part of the model that takes more than a plain BERT; None where there is none."""
    if source.folder is None or source.packed:
        return None
    sentence = read_sentence(source.folder)
    if sentence.obstacle:
        return Need(sentence.obstacle, "export")
    return Need("a graph of its own", "graphs") if sentence.graph else None


def obstacles_to_bert(folder: Path) -> list[str]:
    """Returns the reasons why no graph of BERT can be written from the folder's files."""
    try:
        config = read_config((folder / "config.json").read_bytes())
    except (OSError, *NOT_READABLE):
        return ["a config.json that can't be read"]
    obstacles = [config.obstacle] if config.obstacle else []
    if not any((folder / name).is_file() for name in ("tokenizer.json", VOCABULARY)):
        obstacles.append("no tokenizer.json")
    if not any(folder.glob("*.safetensors")):
        obstacles.append("weights that are no safetensors")
    return obstacles


def _modules(folder: Path) -> tuple[str, list[str]]:
    """Returns how tokens are pooled, and the modules for which no graph can be written."""
    try:
        modules = _decode_modules((folder / "modules.json").read_bytes())
    except OSError:
        return "mean", []
    except NOT_READABLE as error:
        return "mean", [f"modules.json: {error}"]
    pooling, obstacles = "mean", []
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            pooling, obstacle = _pooling(
                object_in(folder / str(module.get("path")) / "config.json")
            )
            obstacles += [obstacle] if obstacle else []
        elif kind not in {"Transformer", "Normalize"}:
            obstacles.append(f"a module {kind or 'without a type'}")
    return pooling, obstacles


def _pooling(config: dict[str, Any]) -> tuple[str, str | None]:
    mode = config.get("pooling_mode")
    if mode is None:  # because sentence-transformers until 5 writes a flag for each mode
        mode = [
            name.removeprefix(_FLAG) for name in config if name.startswith(_FLAG) and config[name]
        ]
    modes = [mode] if isinstance(mode, str) else list(mode)
    pooling = _POOLINGS.get(modes[0]) if len(modes) == 1 else None
    if pooling is None:
        return "mean", f"pooling by {' and '.join(map(str, modes)) or 'nothing'}"
    if config.get("include_prompt") is False:
        return pooling, "pooling without the prompt"
    return pooling, None
