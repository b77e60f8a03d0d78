"""Measures nDCG@10 and confidence of kbproc's search on collections in BEIR form.

    python bench/eval_search.py FOLDER --sets cranfield,xquad/zh [--mode fts] [--fusion rrf]

FOLDER/<set>/ holds corpus.jsonl (_id, title, text), queries.jsonl and qrels.tsv.
Every document goes in by doc.create over a real `kbproc serve`, with the
default model; every judged query is a search with `per_document: 1`. The queries of the next
set are searched, too: the store should be sure of no answer to these.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kbproc.knowledge.search.evaluation.collection import (
    Collection,
    CollectionDocument,
    Question,
    read,
)
from kbproc.knowledge.search.evaluation.measures import ndcg

DEPTH = 10
LEVELS = ("none", "related", "likely")
KBPROC = str(Path(sys.executable).with_name("kbproc"))


class PipelinedServer:
    """Pipelines requests, with a window of them in flight at a time."""

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


def add(collection: Collection, kb: PipelinedServer) -> dict[int, str]:
    """Adds the documents; returns id in the store → id in the collection, once embedded."""
    corpus = [one for one in collection.documents if (one.title + one.text).strip()]
    documents = kb.ask_all("doc.create", [creation(one) for one in corpus])
    names = {document["id"]: one.id for document, one in zip(documents, corpus, strict=True)}
    kb.ask_all("doc.wait", [{}])
    return names


def judged(collection: Collection) -> list[Question]:
    return [question for question in collection.questions if question.gains]


def ask(collection: Collection, kb: PipelinedServer, options: dict[str, Any]) -> list[Any]:
    """Returns the answer to each judged query."""
    requests = [
        {"query": question.text[:2000], "limit": DEPTH, "per_document": 1, **options}
        for question in judged(collection)
    ]
    return kb.ask_all("search", requests)


def quality(collection: Collection, names: dict[int, str], answers: list[Any]) -> float:
    """Returns the mean nDCG@10."""
    scores = [
        ndcg([names[hit["source"]["document_id"]] for hit in answer["results"]], question.gains)
        for question, answer in zip(judged(collection), answers, strict=True)
    ]
    return sum(scores) / len(scores)


def shares(answers: list[Any]) -> str:
    """Returns the shares of LEVELS among the answers, in per cent."""
    counts = Counter(answer["confidence"] for answer in answers)
    return "/".join(f"{100 * counts[level] / len(answers):.0f}" for level in LEVELS)


def creation(one: CollectionDocument) -> dict[str, Any]:
    title = " ".join(one.title.split())[:300]
    return {"title": title or "-", "text": one.text or one.title, "source_id": one.id}


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
            kb = PipelinedServer(Path(folder) / "store")
            own, others = read(arguments.folder / name), read(arguments.folder / other)
            names = add(own, kb)
            answers = ask(own, kb, options)
            foreign = ask(others, kb, options) if other != name else []
            kb.close()
        score = quality(own, names, answers)
        other_shares = f"{shares(foreign)} ({other})" if foreign else "-"
        print(
            f"{name:20} {score:8.4f} {len(answers):8} {shares(answers):>12}   {other_shares}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
