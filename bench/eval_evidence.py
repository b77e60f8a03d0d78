"""How sure a search is, and how well it finds questions in other words, on collections of others.

`python -m bench.eval_evidence FOLDER`: FOLDER holds collections in BEIR form. For each it prints
nDCG@10 in every mode, of all questions and of those that share at most one content word's stem with
each text that answers them; then which share of its own questions, and of forty questions of each
other collection, have the levels `none` and `likely`. `--stores` keeps the filled stores, so that
two versions can be compared on the same ones.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from bench.bulk_legs import answered, call
from kbproc.base.host import Host
from kbproc.base.pipes import leave
from kbproc.library.library import Library
from kbproc.search.evaluation.collection import Collection, Question, read
from kbproc.search.evaluation.measures import ndcg
from kbproc.text.analysis import STOP_WORDS, words
from kbproc.text.stems import stems

SETS = "product-docs,clapnq-dev,codebase-chunks,cranfield,xquad/en,scifact,locomo"
MODES = ("hybrid", "vector", "fts")
OF_EACH_OTHER = 40
_AT_ONCE = 500
_LONGEST_TITLE = 300
_LONGEST_QUERY = 2000


class Measured(Struct):
    """Of one collection: nDCG@10 by mode, and the level of each question in mode hybrid."""

    ndcg: dict[str, list[float]]
    shares_few: list[bool]
    own: list[str]
    foreign: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.eval_evidence", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default=SETS, help="folders in it, comma-separated")
    parser.add_argument("--stores", type=Path, help="where the filled stores are kept")
    options = parser.parse_args()
    collections = {name: read(options.folder / name) for name in options.sets.split(",")}
    print(f"{'':16} {'questions':>9}  " + "  ".join(f"{mode:>7}" for mode in MODES), end="  ")
    print("none: own, foreign; likely: own, foreign")
    with _folder(options.stores) as stores:
        for name, collection in collections.items():
            others = [q for other, c in collections.items() if other != name for q in _some(c)]
            _print(name, measured(collection, others, stores / name.replace("/", "-")))
    return 0


@contextlib.contextmanager
def _folder(stores: Path | None) -> Iterator[Path]:
    if stores is not None:
        stores.mkdir(parents=True, exist_ok=True)
        yield stores
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)


def _some(collection: Collection) -> list[str]:
    """Forty of its answered questions, evenly spread."""
    answered = [question.text for question in collection.questions if question.gains]
    return answered[:: max(1, len(answered) // OF_EACH_OTHER)][:OF_EACH_OTHER]


def measured(collection: Collection, others: list[str], store: Path) -> Measured:
    """Fills the store unless it is there, and asks it everything."""
    library = _filled(collection, store)
    names = _names(library)
    texts = {one.id: content(f"{one.title} {one.text}") for one in collection.documents}
    found = Measured({mode: [] for mode in MODES}, [], [], [])
    for question in collection.questions:
        if not question.gains:
            continue
        found.shares_few.append(_shares_few(question, texts))
        for mode in MODES:
            kb = {"kb": _slug(question.part)} if question.part else {}
            answer = call(
                library,
                "search",
                query=question.text[:_LONGEST_QUERY],
                mode=mode,
                limit=10,
                per_document=1,
                **kb,
            )
            ranked = [names[hit.source.document_id] for hit in answer.results]
            found.ndcg[mode].append(ndcg(ranked, question.gains, 10))
            if mode == "hybrid":
                found.own.append(answer.confidence)
    found.foreign = [
        call(library, "search", query=query[:_LONGEST_QUERY]).confidence for query in others
    ]
    library.close()
    return found


def content(text: str) -> frozenset[str]:
    """The stems of a text's words, small words left out."""
    return frozenset(stems([word for word in words(text) if word not in STOP_WORDS]))


def _shares_few(question: Question, texts: Mapping[str, frozenset[str]]) -> bool:
    own = content(question.text)
    return all(len(own & texts[id]) <= 1 for id in question.gains if id in texts)


def _filled(collection: Collection, store: Path) -> Library:
    """A store with the collection's documents, every vector in place."""
    library = Library.open(store, host=Host(), cache=Path.home() / ".cache" / "kbproc")
    if not call(library, "doc.list", limit=1):
        for part in dict.fromkeys(one.part for one in collection.documents if one.part):
            call(library, "kb.create", slug=_slug(part))
        documents = [
            {
                "title": " ".join(one.title.split())[:_LONGEST_TITLE] or one.id,
                "text": one.text,
                "source_id": one.id,
                **({"kb": _slug(one.part)} if one.part else {}),
            }
            for one in collection.documents
            if one.text.strip()
        ]
        for at in range(0, len(documents), _AT_ONCE):
            call(library, "doc.create", documents=documents[at : at + _AT_ONCE])
    library.embedding.start()
    library.embedding.drain(lambda done, total: None)
    return library


def _slug(part: str) -> str:
    return part.lower().replace("_", "-")


def _names(library: Library) -> dict[int, str]:
    """Each document's id in its collection."""
    names: dict[int, str] = {}
    page: dict[str, object] = {}
    while True:
        answer = answered(library, "doc.list", limit=1000, **page)
        names |= {one.id: one.source.source_id for one in answer.data}
        if not answer.meta.next_cursor:
            return names
        page = {"cursor": answer.meta.next_cursor}


def _print(name: str, found: Measured) -> None:
    rates = [
        f"{levels.count(level) / len(levels):.3f}"
        for level in ("none", "likely")
        for levels in (found.own, found.foreign)
    ]
    print(_row(name, found.ndcg), *rates)
    low = {m: list(itertools.compress(found.ndcg[m], found.shares_few)) for m in MODES}
    print(_row("  few words", low), flush=True)


def _row(name: str, ndcg: Mapping[str, list[float]]) -> str:
    means = "  ".join(f"{_mean(ndcg[mode]):7.4f}" for mode in MODES)
    return f"{name:16} {len(ndcg['hybrid']):9}  {means} "


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


if __name__ == "__main__":
    leave(main())
