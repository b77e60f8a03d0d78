"""Measures how well "I don't know" separates answerable questions from others.

`python -m bench.eval_answers FOLDER`: a collection in BEIR form with `queries-unanswerable.jsonl`.
Each question has two numbers: the best hit's score, and how well that hit supports an answer.
Thresholds are chosen on every other question and judged on the rest.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.filling import filled
from kbproc.base.pipes import leave
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search import search
from kbproc.knowledge.search.confidence import ANSWERED, SURE
from kbproc.knowledge.search.params import Search


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def auc(yes: list[float], no: list[float]) -> float:
    """Returns how often a question with an answer scores higher than one without."""
    wins = sum((y > n) + (y == n) / 2 for y in yes for n in no)
    return wins / (len(yes) * len(no))


def accuracy(yes: list[float], no: list[float], least: float) -> float:
    right = sum(y >= least for y in yes) + sum(n < least for n in no)
    return right / (len(yes) + len(no))


def main() -> int:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        library = filled(Path(scratch) / "store", documents(folder))
        columns = [
            [numbers(library, one["text"]) for one in lines(folder / name)]
            for name in ("queries.jsonl", "queries-unanswerable.jsonl")
        ]
        library.close()
    for place, name in enumerate(("best score", "support")):
        yes, no = ([pair[place] for pair in pairs if pair[place] is not None] for pairs in columns)
        print(f"{name}: {len(yes)} answerable, {len(no)} not; AUC {auc(yes, no):.3f}")
        halves = [(yes[0::2], no[0::2]), (yes[1::2], no[1::2])]
        for (ours, theirs), (judged, other) in (halves, halves[::-1]):
            least = max(sorted({*ours, *theirs}), key=lambda at: accuracy(ours, theirs, at))
            print(f"  threshold {least:.3f}: right {accuracy(judged, other, least):.3f}")
    for level, least in (("answered", ANSWERED), ("sure", SURE)):
        share = sum(y >= least for y in yes) / len(yes)
        below = sum(n < least for n in no) / len(no)
        print(f"{level} from {least}: {share:.3f} of the answerable, {1 - below:.3f} of the others")
    return 0


def documents(folder: Path) -> list[dict[str, str]]:
    """Returns a collection's documents as params of doc.create."""
    return [
        {"title": one.get("title") or one["_id"], "text": one["text"], "source_id": one["_id"]}
        for one in lines(folder / "corpus.jsonl")
    ]


def numbers(library: Library, question: str) -> tuple[float, float | None]:
    """Returns the best hit's score and support."""
    now = library.store.host.now()
    search_result = search.run(library.store, Search(query=question), now=now, supported=True)
    hits = search_result.results.results
    return hits[
        0
    ].score if hits else 0.0, search_result.support.value if search_result.support else None


if __name__ == "__main__":
    leave(main())
