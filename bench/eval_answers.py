"""How well "I don't know" separates what a collection answers from what it does not.

`python -m bench.eval_answers FOLDER`: a collection in BEIR form with `queries-unanswerable.jsonl`.
Each question has two numbers: the best score of what is found, and how well that hit supports an
answer. Thresholds are chosen on every other question and judged on those left.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.bulk_legs import call
from kbproc.base.host import Host
from kbproc.base.pipes import leave
from kbproc.library.library import Library
from kbproc.search import search
from kbproc.search.params import Search
from kbproc.search.support import ANSWERED, SURE


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def auc(yes: list[float], no: list[float]) -> float:
    """How often a question with an answer scores higher than one without."""
    wins = sum((y > n) + (y == n) / 2 for y in yes for n in no)
    return wins / (len(yes) * len(no))


def accuracy(yes: list[float], no: list[float], least: float) -> float:
    right = sum(y >= least for y in yes) + sum(n < least for n in no)
    return right / (len(yes) + len(no))


def main() -> int:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        library = filled(folder, Path(scratch) / "store")
        found = [
            [numbers(library, one["text"]) for one in lines(folder / name)]
            for name in ("queries.jsonl", "queries-unanswerable.jsonl")
        ]
        library.close()
    for place, name in enumerate(("best score", "support")):
        yes, no = ([pair[place] for pair in pairs if pair[place] is not None] for pairs in found)
        print(f"{name}: {len(yes)} answerable, {len(no)} not; AUC {auc(yes, no):.3f}")
        halves = [(yes[0::2], no[0::2]), (yes[1::2], no[1::2])]
        for (ours, theirs), (judged, other) in (halves, halves[::-1]):
            least = max(sorted({*ours, *theirs}), key=lambda at: accuracy(ours, theirs, at))
            print(f"  threshold {least:.3f}: right {accuracy(judged, other, least):.3f}")
    for level, least in (("answered", ANSWERED), ("sure", SURE)):
        kept = sum(y >= least for y in yes) / len(yes)
        below = sum(n < least for n in no) / len(no)
        print(f"{level} from {least}: {kept:.3f} of the answerable, {1 - below:.3f} of the others")
    return 0


def filled(folder: Path, store: Path) -> Library:
    """A store with the collection's documents, every vector in place."""
    library = Library.open(store, host=Host(), cache=Path.home() / ".cache" / "kbproc")
    documents = [
        {"title": one.get("title") or one["_id"], "text": one["text"], "source_id": one["_id"]}
        for one in lines(folder / "corpus.jsonl")
    ]
    for at in range(0, len(documents), 500):
        call(library, "doc.create", documents=documents[at : at + 500])
    library.embedding.start()
    library.embedding.drain(lambda done, total: None)
    return library


def numbers(library: Library, question: str) -> tuple[float, float | None]:
    """The best score, and the support of that hit."""
    now = library.store.host.now()
    found = search.run(library.store, Search(query=question), now=now, supported=True)
    hits = found.results.results
    return hits[0].score if hits else 0.0, found.support.value if found.support else None


if __name__ == "__main__":
    leave(main())
