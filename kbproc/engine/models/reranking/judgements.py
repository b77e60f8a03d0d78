"""Remembers the latest judgements, so that the next page of a search costs nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from kbproc.base.hashes import blake2b

_MOST = 4096


class Judgements:
    """The last few thousand judgements, for any number of threads."""

    def __init__(self) -> None:
        self._scores: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, query: str, texts: Sequence[str], judge: Callable[[list[str]], list[float]]
    ) -> list[float]:
        """Returns a score for each text; `judge` computes those that are not remembered."""
        keys = [_key(query, text) for text in texts]
        with self._lock:
            scores = {key: self._scores[key] for key in keys if key in self._scores}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in scores}
        if missing:
            new = judge(list(missing.values()))
            scores |= dict(zip(missing, new, strict=True))
        with self._lock:
            for key in keys:
                self._scores[key] = scores[key]
                self._scores.move_to_end(key)
            while len(self._scores) > _MOST:
                self._scores.popitem(last=False)
        return [scores[key] for key in keys]


def _key(query: str, text: str) -> bytes:
    encoded = query.encode("utf-8", "replace")
    checksum = blake2b(len(encoded).to_bytes(8, "big"), digest_size=16)
    checksum.update(encoded)
    checksum.update(text.encode("utf-8", "replace"))
    return checksum.digest()
