"""The bare parts: tantivy, FAISS, and rows in memory and in a file of lines. No database between.

This is the floor: no peer can do less and answer the same. In kbproc's own environment.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from bench.floor import LIMIT, Rows, Vectors, Words
from bench.peers.trial import Document, Peer, main

_DIM = 384
_IN_FLIGHT = 64


class Bare(Peer):
    name = "bare parts"
    called = {
        "store": "tantivy with one field of English stems; FAISS, flat; rows in memory, and in a "
        "file of lines",
        "bulk": "all added, one commit, one sync",
        "insert": "a line and its sync; tantivy commits before the next search",
        "pipelined": "64 lines and one sync",
        "keyword": "one query, its words joined by OR, without counting the matches",
        "vector": "exact",
        "hybrid": "five by words, the rest by meaning: nothing is ranked against anything",
    }
    lacks = "everything but that"

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("tantivy", "faiss-cpu")}

    def open(self) -> None:
        self._words = Words(self.folder / "words")
        file = self.folder / "vectors.faiss"
        self._vectors = Vectors(_DIM, file if file.exists() else None)
        self._rows = Rows(self.folder / "rows.ndjson")

    def load(self, documents: list[Document]) -> None:
        self.insert_group(documents)
        self._words.commit()
        self._vectors.save(self.folder / "vectors.faiss")

    def insert(self, document: Document) -> None:
        self.insert_group([document])

    def insert_many(self, documents: list[Document]) -> None:
        for first in range(0, len(documents), _IN_FLIGHT):
            self.insert_group(documents[first : first + _IN_FLIGHT])

    def insert_group(self, documents: list[Document]) -> None:
        self._rows.add([(d.number, d.title, d.text) for d in documents])
        for document in documents:
            self._words.add(document.number, f"{document.title}\n{document.text}")
        if not self.words_only:
            self._vectors.add(np.stack([d.vector for d in documents]))

    def settle(self) -> None:
        self._words.commit()

    def _numbers_at(self, numbers: list[int]) -> list[int]:
        return [self._rows.held[number][0] for number in numbers]

    def keyword(self, query: str) -> list[int]:
        return self._numbers_at(self._words.search(query, count=False))

    def vector(self, query: str, vector: Any) -> list[int]:
        return self._numbers_at(self._vectors.search(vector))

    def hybrid(self, query: str, vector: Any) -> list[int]:
        words = self._words.search(query, count=False)[: LIMIT // 2]
        return self._numbers_at(
            list(dict.fromkeys([*words, *self._vectors.search(vector)]))[:LIMIT]
        )

    def close(self) -> None:
        self._words.close()
        self._rows.close()


if __name__ == "__main__":
    main(Bare)
