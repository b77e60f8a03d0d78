"""Measures confidence, and searches in other words, on published collections.

`python -m bench.eval_evidence FOLDER`: FOLDER holds collections in BEIR form. For each it prints
nDCG@10 in every mode, of all questions and of those that share at most one content word's stem with
each text that answers them; then which share of its own questions, and of forty questions of each
other collection, have the levels `none` and `likely`. `--halves` asks each question of both halves
of its own collection: so the foreign ones are in the same language. `--stores` keeps the filled
stores, so that two versions can be compared on the same ones.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.bulk_legs import call
from bench.filling import filled, kept, names
from kbproc.base.pipes import leave
from kbproc.base.text.analysis import STOP_WORDS, words
from kbproc.base.text.stems import stems
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search.evaluation.collection import Collection, Question, read
from kbproc.knowledge.search.evaluation.measures import ndcg

SETS = "product-docs,clapnq-dev,codebase-chunks,cranfield,xquad/en,scifact,locomo"
MODES = ("hybrid", "vector", "fts")
OF_EACH_OTHER = 40
TOGETHER = 5  # neighbouring texts are of one article
_LONGEST_TITLE = 300
_LONGEST_QUERY = 2000


class Levels(Struct):
    """Levels of confidence of a collection's own questions, and of foreign ones."""

    own: list[str]
    foreign: list[str]

    def __str__(self) -> str:
        return " ".join(
            f"{levels.count(level) / len(levels):.3f}"
            for level in ("none", "likely")
            for levels in (self.own, self.foreign)
        )


class Measured(Struct):
    """The figures of one collection: nDCG@10 by mode, whether each question shares few words with
    its answers, and the levels in mode hybrid.
    """

    ndcg: dict[str, list[float]]
    shares_few: list[bool]
    levels: Levels


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.eval_evidence", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default=SETS, help="folders in it, comma-separated")
    parser.add_argument("--stores", type=Path, help="where the filled stores are kept")
    parser.add_argument("--halves", action="store_true", help="ask both halves of each")
    options = parser.parse_args()
    collections = {name: read(options.folder / name) for name in options.sets.split(",")}
    columns = "" if options.halves else "".join(f"{mode:>9}" for mode in MODES)
    print(f"{'':16} {columns}  none: own, foreign; likely: own, foreign")
    with kept(options.stores) as stores:
        for name, collection in collections.items():
            store = stores / name.replace("/", "-")
            if options.halves:
                levels = levels_of_halves(collection, store.with_name(f"{store.name}-halves"))
                print(f"{name:16} ", levels, flush=True)
                continue
            others = [q for other, c in collections.items() if other != name for q in _some(c)]
            _print(name, measured(collection, others, store))
    return 0


def _some(collection: Collection) -> list[str]:
    """Returns forty answered questions of the collection, evenly spread."""
    answered = [question.text for question in collection.questions if question.gains]
    return answered[:: max(1, len(answered) // OF_EACH_OTHER)][:OF_EACH_OTHER]


def measured(collection: Collection, others: list[str], store: Path) -> Measured:
    """Fills the store unless it exists, and returns the figures of its answers."""
    library = filled(store, _documents(collection))
    ids = names(library)
    texts = {one.id: content(f"{one.title} {one.text}") for one in collection.documents}
    measured = Measured({mode: [] for mode in MODES}, [], Levels([], []))
    for question in _answered(collection):
        measured.shares_few.append(_shares_few(question, texts))
        for mode in MODES:
            answer = _ask(library, question.text, question.part, mode=mode, per_document=1)
            ranked = [ids[hit.source.document_id] for hit in answer.results]
            measured.ndcg[mode].append(ndcg(ranked, question.gains, 10))
            if mode == "hybrid":
                measured.levels.own.append(answer.confidence)
    measured.levels.foreign += [_ask(library, text, None).confidence for text in others]
    library.close()
    return measured


def levels_of_halves(collection: Collection, store: Path) -> Levels:
    """Returns each question's levels in the half of the texts that answers it, and the other."""
    halves = {one.id: f"half-{n // TOGETHER % 2}" for n, one in enumerate(collection.documents)}
    documents = [{**one, "kb": halves[one["source_id"]]} for one in _documents(collection)]
    library = filled(store, documents)
    levels = Levels([], [])
    for question in _answered(collection):
        own = halves[next(iter(question.gains))]
        for half in sorted(set(halves.values())):
            level = _ask(library, question.text, half).confidence
            (levels.own if half == own else levels.foreign).append(level)
    library.close()
    return levels


def _answered(collection: Collection) -> list[Question]:
    return [question for question in collection.questions if question.gains]


def _ask(library: Library, text: str, part: str | None, **params: object) -> Any:
    kb = {"kb": _slug(part)} if part else {}
    return call(library, "search", query=text[:_LONGEST_QUERY], limit=10, **kb, **params)


def content(text: str) -> frozenset[str]:
    """Returns the stems of a text's words, without stop words."""
    return frozenset(stems([word for word in words(text) if word not in STOP_WORDS]))


def _shares_few(question: Question, texts: Mapping[str, frozenset[str]]) -> bool:
    own = content(question.text)
    return all(len(own & texts[id]) <= 1 for id in question.gains if id in texts)


def _documents(collection: Collection) -> list[dict[str, str]]:
    return [
        {
            "title": " ".join(one.title.split())[:_LONGEST_TITLE] or one.id,
            "text": one.text,
            "source_id": one.id,
            **({"kb": _slug(one.part)} if one.part else {}),
        }
        for one in collection.documents
        if one.text.strip()
    ]


def _slug(part: str) -> str:
    return part.lower().replace("_", "-")


def _print(name: str, measured: Measured) -> None:
    print(_row(name, measured.ndcg), measured.levels)
    low = {m: list(itertools.compress(measured.ndcg[m], measured.shares_few)) for m in MODES}
    print(_row("  few words", low), flush=True)


def _row(name: str, ndcg: Mapping[str, list[float]]) -> str:
    means = "  ".join(f"{_mean(ndcg[mode]):7.4f}" for mode in MODES)
    return f"{name:16} {len(ndcg['hybrid']):9}  {means} "


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


if __name__ == "__main__":
    leave(main())
