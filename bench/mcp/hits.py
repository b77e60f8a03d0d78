"""`python -m bench.mcp.hits COLLECTION [...]`: measures the size of five hits from `kbproc mcp`.

A collection is a folder in BEIR form (corpus.jsonl, queries.jsonl, qrels.tsv) or of Markdown files,
whose headings are then the questions. Exit code 1 where five hits have more than 4,000 characters,
which are 1,000 tokens.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbproc.knowledge.search.evaluation.collection import read

MOST = 4_000
_MOST_QUESTIONS = 200
_BATCH = 100
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class McpServer:
    """`kbproc mcp` on a store."""

    def __init__(self, store: str, root: Path) -> None:
        command = [sys.executable, "-m", "kbproc", "mcp", "--store", store, "--root", str(root)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._id = 0

    def call(self, tool: str, **arguments: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        self._id += 1
        params = {"name": tool, "arguments": arguments, "_meta": _META}
        line = {"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        message: Any = {}
        while message.get("id") != self._id:
            message = json.loads(self._process.stdout.readline())
        result = message["result"]
        if result["isError"]:
            raise RuntimeError(result["content"][0]["text"])
        return result

    def any(self, method: str, **params: Any) -> Any:
        return self.call("kb_call", method=method, params=params)

    def close(self) -> None:
        self._process.communicate()


def fill(server: McpServer, folder: Path) -> list[str]:
    """Adds a collection's documents and returns its questions."""
    if not (folder / "corpus.jsonl").exists():
        server.call("doc_add", paths=[str(folder)])
        return list(dict.fromkeys(_headings(folder)))
    collection = read(folder)
    documents = [
        {"title": document.title or document.id, "text": document.text}
        for document in collection.documents
        if document.text.strip()
    ]
    for start in range(0, len(documents), _BATCH):
        server.any("doc.create", documents=documents[start : start + _BATCH])
    return [question.text for question in collection.questions]


def _headings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.md")):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("#") and (heading := line.strip("# ")):
                yield heading


def measure(folder: Path) -> int:
    """Prints the size of five hits, and returns the most characters of a query."""
    with tempfile.TemporaryDirectory() as place:
        server = McpServer(f"{place}/store", folder)
        questions = fill(server, folder)
        server.any("doc.wait", timeout_ms=3_600_000)
        step = max(1, len(questions) // _MOST_QUESTIONS)
        results = [
            server.call("search_knowledge", query=question[:2000])
            for question in questions[::step][:_MOST_QUESTIONS]
        ]
        server.close()
    five = [one for one in results if len(one["structuredContent"]["data"]["results"]) == 5]
    lengths = sorted(max(len(one["content"][0]["text"]), _structured(one)) for one in five)
    passages = sum(
        len(hit["text"]) for one in five for hit in one["structuredContent"]["data"]["results"]
    )
    mean = sum(lengths) / len(lengths)
    print(
        f"{folder.name}: {len(five)} searches with five hits; characters: mean {mean:.0f} "
        f"({mean / 4:.0f} tokens), p95 {lengths[len(lengths) * 95 // 100]}, most {lengths[-1]}; "
        f"passages {passages / len(five):.0f} of them"
    )
    return lengths[-1]


def _structured(result: Any) -> int:
    content = result["structuredContent"]
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def main() -> int:
    most = [measure(Path(folder).resolve()) for folder in sys.argv[1:]]
    return 0 if most and max(most) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
