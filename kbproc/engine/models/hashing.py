"""Embeds texts without a model: words hashed into a vector, equal on every machine."""

from __future__ import annotations

import re
import zlib
from array import array
from typing import TYPE_CHECKING

from kbproc.base.text.caches import cached
from kbproc.engine.models.calibration import UNSCALED
from kbproc.engine.models.fluency import FLUENT, Fluency
from kbproc.engine.models.interface import fingerprint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HASH_DIM = 64
_HASH_TOKENS = 256
_MOST_WORDS = 20_000  # some 4 MB
_WORD = re.compile(r"\w+")


class HashEmbedder:
    """An embedder without a model: words and their trigrams each add ±1 at a hashed place.

    Texts that share words get near vectors. They are the same on every machine, because they are
    made of integer sums and one square root. It serves tests and measurements of speed, not search.
    """

    name = "hash"
    max_tokens = _HASH_TOKENS
    scale = UNSCALED
    filler = None
    tokenizer_path: str | None = None

    def __init__(self, *, dim: int = HASH_DIM) -> None:
        self.dim = dim
        self.fingerprint = fingerprint("hash", 1, dim)

    def embed(self, text: str) -> NDArray[np.float32]:
        import numpy as np  # imported here, because describing the model needs no numpy

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
        """Does nothing, because nothing is open."""


@cached(_MOST_WORDS)
def _codes(word: str) -> bytes:
    """Returns the hashes of the word, twice for its weight, and its trigrams; four bytes each."""
    features = [word, word, *(word[i : i + 3] for i in range(len(word) - 2))]
    hashes = [zlib.crc32(feature.encode("utf-8", "replace")) for feature in features]
    return array("I", hashes).tobytes()
