"""Chroma, embedded: a persistent client and one collection."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from bench.peers.trial import LIMIT, Document, Peer, main


class Chroma(Peer):
    name = "Chroma"
    channels = ("vector",)
    called = {
        "store": "PersistentClient(folder), anonymized_telemetry=False, one collection (cosine)",
        "bulk": "collection.add of ready embeddings, in its largest batches",
        "insert": "collection.add of one document each",
        "vector": "collection.query(query_embeddings=…, n_results=10): HNSW",
    }
    lacks = (
        "ranked keyword search (where_document only filters), hybrid search in its local edition"
    )

    def versions(self) -> dict[str, str]:
        return {"chromadb": version("chromadb")}

    def open(self) -> None:
        import chromadb
        from chromadb.config import Settings

        self._client = chromadb.PersistentClient(
            str(self.folder), settings=Settings(anonymized_telemetry=False)
        )
        self._collection = self._client.get_or_create_collection(
            "documents", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def load(self, documents: list[Document]) -> None:
        most = self._client.get_max_batch_size()
        for first in range(0, len(documents), most):
            self._add(documents[first : first + most])

    def insert(self, document: Document) -> None:
        self._add([document])

    def _add(self, documents: list[Document]) -> None:
        self._collection.add(
            ids=[str(d.number) for d in documents],
            documents=[f"{d.title}\n{d.text}" for d in documents],
            metadatas=[{"title": d.title} for d in documents],
            embeddings=[d.vector for d in documents],
        )

    def vector(self, query: str, vector: Any) -> list[int]:
        result = self._collection.query(query_embeddings=[vector], n_results=LIMIT)
        return [int(id) for id in result["ids"][0]]


if __name__ == "__main__":
    main(Chroma)
