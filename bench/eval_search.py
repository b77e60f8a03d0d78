"""nDCG@10 and confidence of search through kbproc itself, on collections in BEIR form.

    python bench/eval_search.py FOLDER --sets cranfield,xquad/zh [--mode fts] [--fusion rrf]

FOLDER/<set>/ holds corpus.jsonl (_id, title, text), queries.jsonl and qrels.tsv.
Every document goes in by doc.create over a real `kbproc serve`, with the
default model; every judged query is a search with `per_document: 1`. The queries of the next
set are asked, too: of these the store should know nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEPTH = 10
LEVELS = ("none", "related", "likely")
KBPROC = str(Path(sys.executable).with_name("kbproc"))


class Coprocess:
    """Pipelines requests: a window of them is in flight at a time."""

    def __init__(self, store: Path) -> None:
        environment = {**os.environ, "KBPROC_STORE": str(store)}
        self._process = subprocess.Popen(
            [KBPROC, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def ask_all(self, method: str, many: list[dict[str, Any]], window: int = 32) -> list[Any]:
        assert self._process.stdin and self._process.stdout
        answers: dict[int, Any] = {}
        sent = 0
        while len(answers) < len(many):
            while sent < len(many) and sent - len(answers) < window:
                line = {"jsonrpc": "2.0", "id": sent, "method": method, "params": many[sent]}
                self._process.stdin.write(json.dumps(line).encode() + b"\n")
                sent += 1
            self._process.stdin.flush()
            message = json.loads(self._process.stdout.readline())
            if "id" in message:
                if "error" in message:
                    raise RuntimeError(message["error"]["data"])
                answers[message["id"]] = message["result"]["data"]
        return [answers[i] for i in range(len(many))]

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def judgements(folder: Path) -> dict[str, dict[str, int]]:
    """query → document → gain."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    path = next(p for p in (folder / "qrels.tsv", folder / "qrels-train.tsv") if p.exists())
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, gain = line.split("\t")
        found[query][document] = int(gain)
    return found


def ndcg(ranked: list[str], gains: dict[str, int]) -> float:
    """Järvelin and Kekäläinen 2002, with linear gains."""
    got = sum(gains.get(id, 0) / math.log2(i + 2) for i, id in enumerate(ranked[:DEPTH]))
    best = sorted(gains.values(), reverse=True)[:DEPTH]
    ideal = sum(gain / math.log2(i + 2) for i, gain in enumerate(best))
    return got / ideal if ideal else 0.0


def add(folder: Path, kb: Coprocess) -> dict[int, str]:
    """The documents' ids in the store → in the collection, once their vectors are there."""
    corpus = [row for row in rows(folder / "corpus.jsonl") if (row["title"] + row["text"]).strip()]
    made = kb.ask_all("doc.create", [creation(row) for row in corpus])
    names = {document["id"]: row["_id"] for document, row in zip(made, corpus, strict=True)}
    kb.ask_all("doc.wait", [{}])
    return names


def ask(folder: Path, kb: Coprocess, options: dict[str, Any]) -> dict[str, Any]:
    """The id of each judged query → its answer."""
    gains = judgements(folder)
    path = next(p for p in (folder / "queries.jsonl", folder / "queries-train.jsonl") if p.exists())
    queries = {row["_id"]: row["text"][:2000] for row in rows(path) if row["_id"] in gains}
    asked = [
        {"query": text, "limit": DEPTH, "per_document": 1, **options} for text in queries.values()
    ]
    return dict(zip(queries, kb.ask_all("search", asked), strict=True))


def quality(folder: Path, names: dict[int, str], answers: dict[str, Any]) -> float:
    """Mean nDCG@10."""
    gains = judgements(folder)
    scores = [
        ndcg([names[hit["source"]["document_id"]] for hit in found["results"]], gains[query])
        for query, found in answers.items()
    ]
    return sum(scores) / len(scores)


def shares(answers: dict[str, Any]) -> str:
    """In per cent, which of LEVELS the answers have."""
    found = Counter(answer["confidence"] for answer in answers.values())
    return "/".join(f"{100 * found[level] / len(answers):.0f}" for level in LEVELS)


def creation(row: dict[str, Any]) -> dict[str, Any]:
    title = " ".join(row["title"].split())[:300]
    return {"title": title or "-", "text": row["text"] or row["title"], "source_id": row["_id"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default="cranfield,codebase-chunks,product-docs,xquad/zh")
    parser.add_argument("--mode", default="hybrid")
    parser.add_argument("--fusion", default="blend")
    arguments = parser.parse_args()
    options = {"mode": arguments.mode, "fusion": arguments.fusion}
    sets = arguments.sets.split(",")
    print(f"mode {arguments.mode}, {arguments.fusion}; confidence: % {'/'.join(LEVELS)}")
    print(f"{'set':20} {'nDCG@10':>8} {'queries':>8} {'confidence':>12}   of other queries")
    for name, other in zip(sets, [*sets[1:], sets[0]], strict=True):
        with tempfile.TemporaryDirectory(prefix="kbproc-eval-") as folder:
            kb = Coprocess(Path(folder) / "store")
            names = add(arguments.folder / name, kb)
            answers = ask(arguments.folder / name, kb, options)
            foreign = ask(arguments.folder / other, kb, options) if other != name else {}
            kb.close()
        score = quality(arguments.folder / name, names, answers)
        told = f"{shares(foreign)} ({other})" if foreign else "-"
        print(f"{name:20} {score:8.4f} {len(answers):8} {shares(answers):>12}   {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
