"""Measures the gold text within the passages found; a part of `python -m bench.quality`.

`chunking-eval` has long files, and for each question the characters that answer it; the figures go
into bench/spans.json.

Recall is the share of those characters within the best passages; precision is their share of the
passages' characters.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from bench.earlier import Asking, serving
from bench.measure import ROOT
from kbproc.knowledge.search.evaluation.measures import mean_of

RESULTS = ROOT / "bench" / "spans.json"
NAME = "chunking-eval"
BEST = 5


def keep(folder: Path) -> None:
    """Asks the questions, and writes the figures."""
    questions = [json.loads(line) for line in (folder / "queries.jsonl").open()]
    root = ("--root", str(folder))
    with tempfile.TemporaryDirectory() as at, serving(ROOT, Path(at) / "store", *root) as child:
        figures = _measured(folder / "files", questions, Asking(child))
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"{NAME}: recall {figures['recall']['mean']:.3f}", flush=True)


def _measured(folder: Path, questions: list[dict[str, Any]], ask: Asking) -> dict[str, Any]:
    files = {path.name: Packed(path.read_text(encoding="utf-8")) for path in folder.iterdir()}
    ask("doc.ingest", {"paths": [str(folder)]})
    ask("doc.wait", {})
    recall, precision, lengths = [], [], []
    for question in questions:
        hits = ask("search", {"query": question["text"], "limit": BEST})["data"]["results"]
        covered = set()
        for hit in hits:
            name = Path(hit["source"]["path"]).name
            covered |= {(name, at) for at in files[name].characters(hit["text"])}
            lengths.append(len(hit["text"]))
        name = question["doc"]
        gold = {(name, at) for span in question["spans"] for at in files[name].within(*span)}
        recall.append(len(gold & covered) / len(gold))
        precision.append(len(gold & covered) / max(1, len(covered)))
    return {
        "questions": len(questions),
        "passages": BEST,
        "characters": sum(lengths) // len(lengths),
        "recall": mean_of(recall)._asdict(),
        "precision": mean_of(precision)._asdict(),
    }


def results() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


class Packed:
    """A text without its spaces and marks, which no parser has to keep."""

    def __init__(self, text: str) -> None:
        self._places = [at for at, char in enumerate(text) if char.isalnum()]
        self._text = "".join(text[at] for at in self._places)

    def characters(self, passage: str) -> range:
        """Returns the positions of the passage's characters in this text."""
        letters = "".join(filter(str.isalnum, passage))
        start = self._text.find(letters)
        if start < 0:
            raise LookupError(passage)
        return range(start, start + len(letters))

    def within(self, start: int, end: int) -> list[int]:
        return [number for number, at in enumerate(self._places) if start <= at < end]
