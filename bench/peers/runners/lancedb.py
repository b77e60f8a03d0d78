"""LanceDB: an embedded table with a full-text index of its own."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from bench.peers.trial import LIMIT, Document, Peer, main

_ROWS = ["number", "title", "text"]


class LanceDb(Peer):
    name = "LanceDB"
    called = {
        "store": "lancedb.connect(folder), one table",
        "bulk": "create_table of all rows, then create_index('text', config=FTS())",
        "insert": "table.add([row]) each; optimize() after the last",
        "keyword": "search(query, query_type='fts').limit(10)",
        "vector": "search(vector).distance_type('cosine').limit(10), without an index, as fits "
        "a table of this size: exact",
        "hybrid": "search(query_type='hybrid') with its default reranker, limit 10",
    }
    lacks = "a sync to the disk per write"

    def versions(self) -> dict[str, str]:
        return {"lancedb": version("lancedb")}

    def open(self) -> None:
        import lancedb

        self._db = lancedb.connect(str(self.folder))
        names = self._db.list_tables().tables
        self._table: Any = self._db.open_table("documents") if "documents" in names else None

    def load(self, documents: list[Document]) -> None:
        self._create(documents)

    def _create(self, documents: list[Document]) -> None:
        from lancedb.index import FTS

        self._table = self._db.create_table("documents", [_row(d) for d in documents])
        self._table.create_index("text", config=FTS())

    def insert(self, document: Document) -> None:
        if self._table is None:
            self._create([document])
        else:
            self._table.add([_row(document)])

    def settle(self) -> None:
        self._table.optimize()

    def keyword(self, query: str) -> list[int]:
        rows = (
            self._table.search(_plain(query), query_type="fts")
            .select([*_ROWS, "_score"])
            .limit(LIMIT)
            .to_list()
        )
        return [row["number"] for row in rows]

    def vector(self, query: str, vector: Any) -> list[int]:
        search = self._table.search(vector).distance_type("cosine")
        return [
            row["number"] for row in search.select([*_ROWS, "_distance"]).limit(LIMIT).to_list()
        ]

    def hybrid(self, query: str, vector: Any) -> list[int]:
        search = self._table.search(query_type="hybrid").vector(vector).text(_plain(query))
        rows = search.distance_type("cosine").select(_ROWS).limit(LIMIT).to_list()
        return [row["number"] for row in rows]


def _plain(query: str) -> str:
    """Returns the query without quotation marks, which ask for a phrase."""
    return query.replace('"', " ")


def _row(document: Document) -> dict[str, Any]:
    text = f"{document.title}\n{document.text}"
    return {
        "number": document.number,
        "title": document.title,
        "text": text,
        "vector": document.vector,
    }


if __name__ == "__main__":
    main(LanceDb)
