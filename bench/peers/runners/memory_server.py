"""server-memory, the reference MCP server for memory: a graph in a file of lines, over stdio."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from bench.peers.trial import LIMIT, Document, Peer, main

_PACKAGE = "@modelcontextprotocol/server-memory"
_BATCH = 1000


class MemoryServer(Peer):
    name = "server-memory"
    channels = ("keyword",)
    called = {
        "store": "node, MCP over stdin and stdout; a document is an entity with one observation",
        "bulk": "create_entities of 1,000 at a time",
        "insert": "create_entities of one: the whole file is read and written again, not synced",
        "keyword": "search_nodes of the query's first word: a substring, unranked, all matches",
    }
    lacks = "queries of several words, ranking, limits, vectors, a sync to the disk"

    def versions(self) -> dict[str, str]:
        package = _modules() / _PACKAGE / "package.json"
        return {"server-memory": json.loads(package.read_bytes())["version"]}

    def open(self) -> None:
        main_file = _modules() / _PACKAGE / "dist" / "index.js"
        self._server = subprocess.Popen(
            ["node", str(main_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MEMORY_FILE_PATH": str(self.folder.resolve() / "memory.jsonl")},
        )
        self._next = 0
        client = {"name": "bench", "version": "1"}
        self._ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()

    def _ask(self, method: str, **params: object) -> Any:
        self._next += 1
        self._write({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        assert self._server.stdout
        for line in self._server.stdout:
            message = json.loads(line)
            if message.get("id") == self._next:
                return message["result"]
        raise EOFError("server-memory has ended")

    def _call(self, tool: str, **arguments: object) -> Any:
        result = self._ask("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(result["content"][0]["text"])
        return json.loads(result["content"][0]["text"])

    def load(self, documents: list[Document]) -> None:
        for first in range(0, len(documents), _BATCH):
            entities = [_entity(d) for d in documents[first : first + _BATCH]]
            self._call("create_entities", entities=entities)

    def insert(self, document: Document) -> None:
        self._call("create_entities", entities=[_entity(document)])

    def keyword(self, query: str) -> list[int]:
        answer = self._call("search_nodes", query=query.split(maxsplit=1)[0])
        names = [entity["name"] for entity in answer["entities"]]
        return [int(name.rpartition(" ")[2]) for name in names[:LIMIT]]

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()

    def pid(self) -> int:
        return self._server.pid


def _modules() -> Path:
    return Path(os.environ["KBPROC_BENCH_NODE_MODULES"])


def _entity(document: Document) -> dict[str, Any]:
    # Names are unique there, and answers name nothing else.
    name = f"{document.title} {document.number}"
    return {"name": name, "entityType": "document", "observations": [document.text]}


if __name__ == "__main__":
    main(MemoryServer)
