"""Runs an exported cross-encoder: one pair at a time, on one thread, by onnxruntime.

Owns: the layout of its folder (model.onnx, tokenizer.json, reranker.json), how a query and a text
are read together, and how a logit becomes a score.
Refuses to know: where the folder comes from and how it was made.

One pair at a time: with dynamic int8 a pair's logit depends on what shares its batch.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.values import decoder
from kbproc.models.onnx import MODEL, TOKENIZER, session, tokenizer

FORMAT = 1
META = "reranker.json"
OUTPUT = "logit"


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """reranker.json. `max_tokens`: of a query and a text together, special tokens included.

    `parity`: the greatest difference from the model's own scores at export, and from its logits.
    """

    format: int = FORMAT
    name: str
    max_tokens: int
    weights_sha256: str
    precision: str
    parity: tuple[float, float] = (0.0, 0.0)


_decode_meta = decoder(Meta).decode


def read_meta(folder: Path) -> Meta | None:
    """The meta of an exported cross-encoder; None where the folder holds no usable one."""
    try:
        meta = _decode_meta((folder / META).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    whole = (folder / MODEL).is_file() and (folder / TOKENIZER).is_file()
    return meta if whole and meta.format == FORMAT else None


def logistic(logit: float) -> float:
    """1 / (1 + e^−x) without an overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    grown = math.exp(logit)
    return grown / (1 + grown)


class Exported:
    """An exported cross-encoder. Any number of threads may ask at once; each runs on its own."""

    def __init__(self, folder: Path) -> None:
        """Loads the model; raises model.unavailable."""
        meta = read_meta(folder)
        if meta is None:
            raise KbprocError(
                "model.unavailable",
                f"The exported cross-encoder in {folder} is incomplete.",
                hint=f"Remove {folder}: it is exported again.",
            )
        self._session = session(folder, OUTPUT)
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._tokenizer = tokenizer(folder)
        self._tokenizer.no_truncation()
        self._most = meta.max_tokens
        self._special = self._tokenizer.num_special_tokens_to_add(True)

    def query(self, text: str) -> Any:
        """A query as the model reads it: it may take half of what that reads, the rest is cut."""
        encoding = self._encode(text)
        encoding.truncate(max(1, (self._most - self._special) // 2))
        return encoding

    def logit(self, query: Any, text: str) -> float:
        """`query`: see there. What of the text exceeds max_tokens is not read."""
        import numpy as np

        encoding = self._encode(text)
        encoding.truncate(self._most - self._special - len(query.ids))
        pair = self._tokenizer.post_process(query, encoding)
        columns = {
            "input_ids": pair.ids,
            "attention_mask": pair.attention_mask,
            "token_type_ids": pair.type_ids,
        }
        feed = {name: np.array([columns[name]], np.int64) for name in self._inputs}
        return float(self._session.run([OUTPUT], feed)[0][0])

    def _encode(self, text: str) -> Any:
        # A lone surrogate has no UTF-8 and the tokenizer refuses it.
        clean = text.encode("utf-8", "replace").decode()
        return self._tokenizer.encode(clean, add_special_tokens=False)
