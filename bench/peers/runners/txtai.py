"""txtai: one Embeddings index with content, words and vectors."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from bench.peers.runners import external
from bench.peers.trial import LIMIT, Document, Peer, main


class Txtai(Peer):
    name = "txtai"
    called = {
        "store": "Embeddings(hybrid=True, content=True), vectors given by an external method",
        "bulk": "embeddings.index, then save",
        "insert": "embeddings.upsert of one document, then save: nothing is on the disk before",
        "keyword": "search(query, 10, weights=0): scored by words alone, though both are searched",
        "vector": "search(query, 10, weights=1): by vectors alone, though both are searched; FAISS",
        "hybrid": "search(query, 10): both, half and half",
    }
    lacks = "single writes: save writes the whole index again"

    def versions(self) -> dict[str, str]:
        return {"txtai": version("txtai")}

    def open(self) -> None:
        from txtai import Embeddings

        self._path = str(self.folder / "index")
        self._embeddings: Any = Embeddings(
            method="external",
            transform="bench.peers.runners.external.vectors_of",
            content=True,
            hybrid=True,
        )
        if (self.folder / "index").exists():
            self._embeddings.load(self._path)

    def load(self, documents: list[Document]) -> None:
        self._embeddings.index(_rows(documents))
        self._embeddings.save(self._path)

    def insert(self, document: Document) -> None:
        self._embeddings.upsert(_rows([document]))
        self._embeddings.save(self._path)

    def keyword(self, query: str) -> list[int]:
        return self._search(query, 0)

    def vector(self, query: str, vector: Any) -> list[int]:
        external.ready[query] = vector
        return self._search(query, 1)

    def hybrid(self, query: str, vector: Any) -> list[int]:
        external.ready[query] = vector
        return self._search(query, None)

    def _search(self, query: str, weights: float | None) -> list[int]:
        return [int(row["id"]) for row in self._embeddings.search(query, LIMIT, weights=weights)]

    def close(self) -> None:
        self._embeddings.close()


def _rows(documents: list[Document]) -> list[tuple[int, str]]:
    rows = [(d.number, f"{d.title}\n{d.text}") for d in documents]
    external.ready.update({row[1]: d.vector for row, d in zip(rows, documents, strict=True)})
    return rows


if __name__ == "__main__":
    main(Txtai)
