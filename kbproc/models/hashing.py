"""A model-free embedder: words hashed into a vector.

Owns: the hash, equal on every machine.
Refuses to know: meaning.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from kbproc.models.calibration import AS_IT_IS
from kbproc.models.fluency import FLUENT, Fluency
from kbproc.models.interface import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HASH_DIM = 64
_HASH_TOKENS = 256
_WORD = re.compile(r"\w+")


class HashEmbedder:
    """No model: words and their trigrams, each adding ±1 at a hashed place.

    Texts that share words get near vectors, the same on every machine: integer
    sums, one square root. For tests and speed measurements, not for search.
    """

    name = "hash"
    max_tokens = _HASH_TOKENS
    scale = AS_IT_IS
    batches = False
    tokenizer_path: str | None = None

    def __init__(self, *, dim: int = HASH_DIM) -> None:
        self.dim = dim
        self.fingerprint = fingerprint("hash", 1, dim)

    def embed(self, text: str) -> NDArray[np.float32]:
        import numpy as np  # what the model is can be told without

        sums = [0] * self.dim
        for word in _WORD.findall(text.casefold()):
            self._add(sums, word, 2)
            for i in range(len(word) - 2):
                self._add(sums, word[i : i + 3], 1)
        if not any(sums):
            sums[0] = 1
        wide = np.array(sums, np.float64)
        vector: NDArray[np.float32] = (wide / np.sqrt((wide * wide).sum())).astype(np.float32)
        return vector

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed(text)

    def _add(self, sums: list[int], feature: str, weight: int) -> None:
        code = zlib.crc32(feature.encode("utf-8", "replace"))
        sums[(code >> 1) % self.dim] += weight if code & 1 else -weight

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return [self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        return len(_WORD.findall(text))

    def fluency(self, text: str) -> Fluency:
        return FLUENT

    def close(self) -> None:
        """Nothing is held."""
