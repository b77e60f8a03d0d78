"""SQLite FTS5 in a process of its own, which answers what kbproc answers: the same work over pipes.

An answer holds ten hits with their text, a snippet with marks, and the exact count of all matches.
`--serve FOLDER` is that process; otherwise this is its client.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pysqlite3 as sqlite3

from bench.peers.runners.sqlite import any_of
from bench.peers.trial import LIMIT, Document, Peer, main

_SNIPPET_WORDS = 40


class SqlitePiped(Peer):
    name = "SQLite FTS5 behind pipes"
    channels = ("keyword",)
    called = {
        "store": "one file, journal_mode=WAL, synchronous=FULL, held by a process that reads and "
        "writes JSON lines",
        "bulk": "one line, executemany in one transaction",
        "insert": "one line and one transaction each",
        "keyword": "fts5, the words joined by OR, order by rank limit 10, each with its text, "
        "snippet() with marks, and count(*) of all matches",
    }
    lacks = "vectors, in this comparison"

    def versions(self) -> dict[str, str]:
        return {"SQLite": sqlite3.sqlite_version}

    def open(self) -> None:
        argv = [sys.executable, "-m", __spec__.name, "--serve", str(self.folder)]
        self._server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ask("ping")

    def _ask(self, do: str, **params: object) -> Any:
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps({"do": do, **params}).encode() + b"\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def load(self, documents: list[Document]) -> None:
        self._ask("write", rows=[(d.number, d.title, d.text) for d in documents])

    def insert(self, document: Document) -> None:
        self.load([document])

    def keyword(self, query: str) -> list[int]:
        return [hit["number"] for hit in self._ask("search", query=query)["hits"]]

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()

    def pid(self) -> int:
        return self._server.pid


def serve(folder: Path) -> None:
    """Answers lines until stdin ends."""
    db = sqlite3.connect(folder / "store.db", isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=full")
    db.execute(
        "create virtual table if not exists words using "
        "fts5(title, text, tokenize='porter unicode61')"
    )
    for line in sys.stdin.buffer:
        command = json.loads(line)
        answer = {"search": _search, "write": _write, "ping": _ping}[command["do"]](db, command)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _ping(db: Any, command: dict[str, Any]) -> dict[str, Any]:
    return {}


def _write(db: Any, command: dict[str, Any]) -> dict[str, Any]:
    db.execute("begin")
    db.executemany("insert into words(rowid, title, text) values (?, ?, ?)", command["rows"])
    db.execute("commit")
    return {}


def _search(db: Any, command: dict[str, Any]) -> dict[str, Any]:
    words = any_of(command["query"])
    rows = db.execute(
        "select rowid, title, text, rank, snippet(words, 1, '<b>', '</b>', '…', ?) from words "
        "where words match ? order by rank limit ?",
        (_SNIPPET_WORDS, words, LIMIT),
    ).fetchall()
    total = db.execute("select count(*) from words where words match ?", (words,)).fetchone()[0]
    names = ("number", "title", "text", "score", "snippet")
    return {"total": total, "hits": [dict(zip(names, row, strict=True)) for row in rows]}


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(Path(sys.argv[-1]))
    else:
        main(SqlitePiped)
