"""SQLite with FTS5 and the extension sqlite-vec: two tables in one file.

It uses pysqlite3, Python's module with a newer SQLite, because not every Python loads extensions.
"""

from __future__ import annotations

from typing import Any

import pysqlite3 as sqlite3

from bench.peers.trial import LIMIT, Document, Peer, main

_DIM = 384
_RRF = 60


def any_of(query: str) -> str:
    """Returns FTS5's expression for texts with any of the query's words."""
    words = (word.replace('"', "") for word in query.split())
    return " OR ".join(f'"{word}"' for word in words if word)


class Sqlite(Peer):
    name = "SQLite FTS5 + sqlite-vec"
    called = {
        "store": "one file, journal_mode=WAL, synchronous=FULL: a commit is on the disk",
        "bulk": "executemany in one transaction",
        "insert": "one transaction each: the row in FTS5, the vector in vec0",
        "keyword": "fts5(title, text), tokenize='porter unicode61'; the words joined by OR, "
        "order by rank limit 10",
        "vector": "vec0, cosine, k = 10: exact",
        "hybrid": "both, ten each, fused by reciprocal rank in Python, as its documentation shows",
    }
    lacks = "hybrid search of its own"

    def versions(self) -> dict[str, str]:
        parts = {"SQLite": sqlite3.sqlite_version}
        if not self.words_only:
            parts["sqlite-vec"] = str(self._db.execute("select vec_version()").fetchone()[0])
        return parts

    def open(self) -> None:
        self._db = sqlite3.connect(self.folder / "store.db", isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=full")
        self._db.execute(
            "create virtual table if not exists words using "
            "fts5(title, text, tokenize='porter unicode61')"
        )
        if not self.words_only:
            self._open_vectors()

    def _open_vectors(self) -> None:
        import sqlite_vec

        self._db.enable_load_extension(True)
        sqlite_vec.load(self._db)
        self._db.enable_load_extension(False)
        self._db.execute(
            "create virtual table if not exists vectors using "
            f"vec0(vector float[{_DIM}] distance_metric=cosine)"
        )

    def load(self, documents: list[Document]) -> None:
        self._write(documents)

    def insert(self, document: Document) -> None:
        self._write([document])

    def _write(self, documents: list[Document]) -> None:
        self._db.execute("begin")
        self._db.executemany(
            "insert into words(rowid, title, text) values (?, ?, ?)",
            [(d.number, d.title, d.text) for d in documents],
        )
        if not self.words_only:
            self._db.executemany(
                "insert into vectors(rowid, vector) values (?, ?)",
                [(d.number, d.vector.tobytes()) for d in documents],
            )
        self._db.execute("commit")

    def keyword(self, query: str) -> list[int]:
        words = any_of(query)
        rows = self._db.execute(
            "select rowid, title, text, rank from words where words match ? order by rank limit ?",
            (words, LIMIT),
        )
        return [row[0] for row in rows.fetchall()]

    def vector(self, query: str, vector: Any) -> list[int]:
        rows = self._db.execute(
            "select v.rowid, w.title, w.text, v.distance from "
            "(select rowid, distance from vectors where vector match ? and k = ?) v "
            "join words w on w.rowid = v.rowid order by v.distance",
            (vector.tobytes(), LIMIT),
        )
        return [row[0] for row in rows.fetchall()]

    def hybrid(self, query: str, vector: Any) -> list[int]:
        scores: dict[int, float] = {}
        for numbers in (self.keyword(query), self.vector(query, vector)):
            for rank, number in enumerate(numbers, 1):
                scores[number] = scores.get(number, 0) + 1 / (_RRF + rank)
        return sorted(scores, key=lambda number: -scores[number])[:LIMIT]

    def close(self) -> None:
        self._db.close()


if __name__ == "__main__":
    main(Sqlite)
