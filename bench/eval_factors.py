"""Measures the gain and cost of single factors of searches, on published collections.

`python -m bench.eval_factors times LOCOMO` - the weight of entries from another time
(kbproc/knowledge/search/times.py): the turns of LoCoMo's conversations taken as notes, each
written on its day, and the questions that say when. `python -m bench.eval_factors similar SCIFACT`
- the likeness from which a new entry is reported as near another
(kbproc/knowledge/search/similar.py): SciFact's claims, of which some are about the same abstract,
taken as entries.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from bench import eval_answers, filling
from bench.earlier import filled, pack_of
from bench.measure import ROOT
from kbproc.base.pipes import leave
from kbproc.base.text.likeness import likeness
from kbproc.engine.models.catalogue import load
from kbproc.engine.models.fluency import FLUENT
from kbproc.engine.models.interface import ModelSpec
from kbproc.engine.sources.chunk import embed_text
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search import ranking, search
from kbproc.knowledge.search.evaluation.collection import read
from kbproc.knowledge.search.evaluation.measures import mean_of, ndcg
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.times import period

CACHE = Path(tempfile.gettempdir()) / "kbproc-eval"
FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.4, 0.0)
LIMITS = (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8)
WARM = 20  # questions before the clock starts
_AS_TOLD = "%I:%M %p on %d %B, %Y"


def main() -> int:
    what, folder = sys.argv[1], Path(sys.argv[2])
    {"times": times, "similar": similar, "cost": cost}[what](folder)
    return 0


def times(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").open()]
    written = {row["_id"]: datetime.strptime(row["date"], _AS_TOLD) for row in rows}
    ends: dict[str, datetime] = {}
    for row in rows:
        ends[row["conv"]] = max(ends.get(row["conv"], datetime.min), written[row["_id"]])
    collection = read(folder)
    questions = []
    for question in collection.questions:
        assert question.part is not None
        now = (ends[question.part] + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        span = period(question.text, now)
        if span is not None and question.gains:
            questions.append((question, span))
    with filled(ROOT, collection, CACHE / pack_of(folder.name)) as (store, _):
        answers = store.answers([question for question, _ in questions], "hybrid", {})
    print(f"{len(questions)} questions say when")
    base: list[float] = []
    for factor in FACTORS:
        each = []
        for (question, span), hits in zip(questions, answers, strict=True):
            scores = {
                id: score if span.holds(f"{written[id]:%Y-%m-%dT%H:%M:%S.000Z}") else factor * score
                for id, score in zip(hits.ranked, hits.scores, strict=True)
            }
            each.append(ndcg(sorted(scores, key=lambda id: -scores[id]), question.gains))
        base = base or each
        change = mean_of([b - a for a, b in zip(base, each, strict=True)])
        print(f"{factor:.1f}: nDCG@10 {mean_of(each).mean:.3f}, changes by {told_of(change)}")


def told_of(change: Any) -> str:
    return f"{change.mean:+.3f} ({change.low:+.3f} to {change.high:+.3f})"


def similar(folder: Path) -> None:
    """Takes each claim as the newest entry; claims about a shared abstract are near it."""
    claims = [question for question in read(folder).questions if question.gains]
    embedder = load(ModelSpec(), Path.home() / ".cache" / "kbproc" / "models")
    vectors = [embedder.embed(embed_text("", None, claim.text)) for claim in claims]
    about = defaultdict(set)
    for number, claim in enumerate(claims):
        for document in claim.gains:
            about[document].add(number)
    restated, alone = [], []
    for number, claim in enumerate(claims):
        near = set().union(*(about[document] for document in claim.gains)) - {number}
        each = {
            other: (
                likeness(claim.text, claims[other].text)
                + min(1.0, max(0.0, float(vectors[number] @ vectors[other])))
            )
            / 2
            for other in range(len(claims))
            if other != number
        }
        if near:
            restated.append(max(each[other] for other in near))
        alone.append(max(value for other, value in each.items() if other not in near))
    print(f"{len(restated)} claims have another about the same abstract, of {len(claims)}")
    for least in LIMITS:
        right = sum(value >= least for value in restated) / len(restated)
        wrong = sum(value >= least for value in alone) / len(alone)
        print(
            f"{least:.2f}: names {right:.0%} of those; one about another abstract for {wrong:.1%}"
        )


def cost(folder: Path) -> None:
    texts = [question.text for question in read(folder).questions if question.gains]
    with tempfile.TemporaryDirectory() as scratch:
        library = filling.filled(Path(scratch) / "store", eval_answers.documents(folder))
        for mode in ("hybrid", "fts"):
            pairs = [_both(library, Search(query=text, mode=mode)) for text in texts][WARM:]
            with_them, without = (statistics.median(times) for times in zip(*pairs, strict=True))
            added = statistics.median(a - b for a, b in pairs)
            print(f"{mode}: {without:.2f} ms without, {with_them:.2f} with; {added:+.2f} ms")
        library.close()


def _both(library: Library, params: Search) -> tuple[float, float]:
    """Returns milliseconds with the factors, and without."""
    with_them = _spent(library, params)
    with ExitStack() as without:
        for target, name, none in (
            (ranking, "read", lambda snapshot, query, within: (query, [])),
            (ranking.Times, "of", lambda query, now: None),
            (type(library.store.model), "fluency", lambda self, text, is_foreign: FLUENT),
        ):
            without.enter_context(mock.patch.object(target, name, none))
        return with_them, _spent(library, params)


def _spent(library: Library, params: Search) -> float:
    def once() -> float:
        started = time.thread_time()
        search.run(library.store, params, now=library.store.host.now())
        return 1000 * (time.thread_time() - started)

    return min(once() for _ in range(3))


if __name__ == "__main__":
    leave(main())
