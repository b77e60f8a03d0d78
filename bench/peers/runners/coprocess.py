"""kbproc: a client of `kbproc serve`, over its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

from bench.peers.trial import LIMIT, Document, Peer, main

_IN_FLIGHT = 64
_MOST_AT_ONCE = 1_000


class Coprocess(Peer):
    name = "kbproc"
    called = {
        "store": "kbproc serve, JSON-RPC over stdin and stdout; every time holds pipes and JSON",
        "bulk": "doc.create of 1,000 documents at a time, then doc.wait until all are found by "
        "meaning, too; the vectors lie ready in its pack",
        "insert": "doc.create, each answered before the next: its record is on the disk",
        "pipelined": "doc.create, 64 in flight: each is answered once its record is on the disk",
        "keyword": "search, mode fts: stems and words, exact total, snippets, highlights",
        "vector": "search, mode vector; the query is embedded within (hash embedder)",
        "hybrid": "search, its default; the query is embedded within (hash embedder)",
    }

    def versions(self) -> dict[str, str]:
        return {"kbproc": version("kbproc")}

    def open(self) -> None:
        store = self.folder / "store"
        argv = [sys.executable, "-m", "kbproc", "serve", "--store", str(store)]
        self._numbers: dict[int, int] = {}
        self._server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._next = 0
        names = self.folder / "numbers.json"
        if names.exists():
            self._numbers = {int(k): v for k, v in json.loads(names.read_bytes()).items()}
        self._ask("ping")  # returns when the store is open, like libraries

    def _send(self, method: str, **params: object) -> None:
        assert self._server.stdin
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()

    def _receive(self) -> Any:
        """Returns the next response, and skips events."""
        assert self._server.stdout
        for line in self._server.stdout:
            message = json.loads(line)
            if "id" in message:
                if "error" in message:
                    raise RuntimeError(message["error"]["message"])
                return message["result"]
        raise EOFError("kbproc serve has ended")

    def _ask(self, method: str, **params: object) -> Any:
        self._send(method, **params)
        return self._receive()

    def load(self, documents: list[Document]) -> None:
        for first in range(0, len(documents), _MOST_AT_ONCE):
            batch = documents[first : first + _MOST_AT_ONCE]
            contents = [{"title": d.title, "text": d.text} for d in batch]
            answers = self._ask("doc.create", documents=contents)["data"]["documents"]
            for document, one in zip(batch, answers, strict=True):
                self._known(document, one)
        self._ask("doc.wait")
        self._ask("search", query=documents[0].text[:40], mode="fts")
        self._remember()

    def _remember(self) -> None:
        (self.folder / "numbers.json").write_text(json.dumps(self._numbers), encoding="utf-8")

    def insert(self, document: Document) -> None:
        self._send("doc.create", title=document.title, text=document.text)
        self._made(document)

    def insert_many(self, documents: list[Document]) -> None:
        """Answers come in the order of the writes."""
        for place, document in enumerate(documents):
            self._send("doc.create", title=document.title, text=document.text)
            if place >= _IN_FLIGHT - 1:
                self._made(documents[place - _IN_FLIGHT + 1])
        for document in documents[max(0, len(documents) - _IN_FLIGHT + 1) :]:
            self._made(document)

    def _made(self, document: Document) -> None:
        self._known(document, self._receive()["data"])

    def _known(self, document: Document, answer: dict[str, Any]) -> None:
        if answer["chunk_count"] != 1:
            raise RuntimeError("a text was cut: its vector is not the one that is given")
        self._numbers[answer["id"]] = document.number

    def _search(self, query: str, mode: str) -> list[int]:
        answer = self._ask("search", query=query, mode=mode, limit=LIMIT)
        if answer["meta"].get("notice"):
            raise RuntimeError(f"the search was not whole: {answer['meta']['notice']}")
        ids = [hit["source"]["document_id"] for hit in answer["data"]["results"]]
        return [self._numbers.get(id, -1) for id in ids]

    def keyword(self, query: str) -> list[int]:
        return self._search(query, "fts")

    def vector(self, query: str, vector: Any) -> list[int]:
        return self._search(query, "vector")

    def hybrid(self, query: str, vector: Any) -> list[int]:
        return self._search(query, "hybrid")

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()

    def pid(self) -> int:
        return self._server.pid


if __name__ == "__main__":
    main(Coprocess)
