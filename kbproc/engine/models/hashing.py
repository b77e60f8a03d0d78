"""A model-free embedder: words hashed into a vector.

Owns: the hash, equal on every machine.
Refuses to know: meaning.
"""

from __future__ import annotations

import re
import zlib
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING

from kbproc.models.calibration import AS_IT_IS
from kbproc.models.fluency import FLUENT, Fluency
from kbproc.models.interface import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HASH_DIM = 64
_HASH_TOKENS = 256
_MOST_WORDS = 20_000  # some 4 MB
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

        words = _WORD.findall(text.casefold())
        codes = np.frombuffer(b"".join(map(_codes, words)), np.uint32)
        signs = np.where(codes & 1, 1.0, -1.0)
        sums = np.bincount((codes >> 1) % self.dim, signs, self.dim)
        if not sums.any():
            sums[0] = 1
        vector: NDArray[np.float32] = (sums / np.sqrt((sums * sums).sum())).astype(np.float32)
        return vector

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed(text)

    def embed_many(self, texts: list[str]) -> list[NDArray[np.float32]]:
        return [self.embed(text) for text in texts]

    def count_tokens(self, text: str) -> int:
        return len(_WORD.findall(text))

    def fluency(self, text: str, *, is_foreign: bool = False) -> Fluency:
        return FLUENT

    def close(self) -> None:
        """Nothing is held."""


@lru_cache(_MOST_WORDS)
def _codes(word: str) -> bytes:
    """What is hashed, four bytes each: the word, which weighs double, and its trigrams."""
    features = [word, word, *(word[i : i + 3] for i in range(len(word) - 2))]
    return array("I", [zlib.crc32(one.encode("utf-8", "replace")) for one in features]).tobytes()
