"""How much of what answers stands in the passages found; a part of `python -m bench.quality`.

Owns: the questions of `chunking-eval` (long files, and the characters that answer each question),
and bench/spans.json.
Refuses to know: how passages are cut and found.

Recall is the share of those characters that the best passages hold; precision the share of the
passages that they are.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from bench.earlier import Asking, serving
from bench.measure import ROOT
from kbproc.search.evaluation.measures import mean_of

RESULTS = ROOT / "bench" / "spans.json"
NAME = "chunking-eval"
BEST = 5


def keep(folder: Path) -> None:
    """Asks, and writes what came of it."""
    questions = [json.loads(line) for line in (folder / "queries.jsonl").open()]
    root = ("--root", str(folder))
    with tempfile.TemporaryDirectory() as at, serving(ROOT, Path(at) / "store", *root) as child:
        told = _measured(folder / "files", questions, Asking(child))
    RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{NAME}: recall {told['recall']['mean']:.3f}", flush=True)


def _measured(folder: Path, questions: list[dict[str, Any]], ask: Asking) -> dict[str, Any]:
    files = {path.name: Packed(path.read_text(encoding="utf-8")) for path in folder.iterdir()}
    ask("doc.ingest", {"paths": [str(folder)]})
    ask("doc.wait", {})
    recall, precision, lengths = [], [], []
    for question in questions:
        found = ask("search", {"query": question["text"], "limit": BEST})["data"]["results"]
        held = set()
        for hit in found:
            name = Path(hit["source"]["path"]).name
            held |= {(name, at) for at in files[name].characters(hit["text"])}
            lengths.append(len(hit["text"]))
        name = question["doc"]
        gold = {(name, at) for span in question["spans"] for at in files[name].within(*span)}
        recall.append(len(gold & held) / len(gold))
        precision.append(len(gold & held) / max(1, len(held)))
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
        """Those of the passage, by their numbers here."""
        wanted = "".join(filter(str.isalnum, passage))
        start = self._text.find(wanted)
        if start < 0:
            raise LookupError(passage)
        return range(start, start + len(wanted))

    def within(self, start: int, end: int) -> list[int]:
        return [number for number, at in enumerate(self._places) if start <= at < end]
