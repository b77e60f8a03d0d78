"""How well "I don't know" separates what a collection answers from what it does not.

`python -m bench.eval_answers FOLDER`: a collection in BEIR form with `queries-unanswerable.jsonl`.
Each question's number is the best score of what is found. The threshold is chosen on every other
question and judged on those left.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.bulk_legs import call
from kbproc.base.host import Host
from kbproc.library.library import Library
from kbproc.search.confidence import LIKELY, RELATED
from kbproc.sessions.retrieval import Wanted, find


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
    cache = Path.home() / ".cache" / "kbproc"
    with tempfile.TemporaryDirectory() as scratch:
        library = Library.open(Path(scratch) / "store", host=Host(), cache=cache)
        documents = [
            {"title": one.get("title") or one["_id"], "text": one["text"], "source_id": one["_id"]}
            for one in lines(folder / "corpus.jsonl")
        ]
        for at in range(0, len(documents), 500):
            call(library, "doc.create", documents=documents[at : at + 500])
        library.embedding.start()
        library.embedding.drain(lambda done, total: None)
        best: list[list[float]] = []
        for name in ("queries.jsonl", "queries-unanswerable.jsonl"):
            asked = [Wanted(question=one["text"], kbs=None) for one in lines(folder / name)]
            found = [find(library.store, one, now=library.store.host.now()) for one in asked]
            best.append([max((p.score for p in one.passages), default=0.0) for one in found])
        library.close()
    yes, no = best
    print(f"{len(yes)} answerable, {len(no)} not; AUC {auc(yes, no):.3f}", file=sys.stderr)
    halves = [(yes[0::2], no[0::2]), (yes[1::2], no[1::2])]
    for (ours, theirs), (judged, other) in (halves, halves[::-1]):
        least = max(sorted({*ours, *theirs}), key=lambda at: accuracy(ours, theirs, at))
        print(f"threshold {least:.3f}: right {accuracy(judged, other, least):.3f}", file=sys.stderr)
    for level, least in (("related", RELATED["hybrid"]), ("likely", LIKELY["hybrid"])):
        said = accuracy(yes, no, least)
        kept = sum(y >= least for y in yes) / len(yes)
        refused = sum(n < least for n in no) / len(no)
        print(
            f"{level} from {least}: right {said:.3f}, of the answerable {kept:.3f} answered, "
            f"of the others {refused:.3f} refused",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
