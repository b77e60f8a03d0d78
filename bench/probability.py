"""Learns the probability that a hit answers, and measures it on questions kept aside.

`python -m bench.probability FOLDER --stores STORES`: FOLDER holds collections in BEIR form; STORES
keeps the filled stores. For each collection it searches its own questions, words out of them, and
questions of other collections. A hit that does not answer its own question stands for the best hit
of a store that lacks the answer. Two thirds of the questions choose the weights; the others make
the tables: how often each level comes, and of how many hits of about a probability it is true.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.bulk_legs import call
from bench.eval_evidence import TOGETHER, _documents, _slug
from bench.filling import filled, names
from kbproc.base.pipes import leave
from kbproc.base.text.analysis import is_unspaced, words
from kbproc.base.text.query import parse_query
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search.evaluation.collection import Collection, Question, read
from kbproc.knowledge.search.probability import LIKELY, NOTHING, RELATED

SETS = (
    "clapnq-dev,product-docs,cranfield,cisi,cacm,scifact,locomo,xquad/en,xquad/de,xquad/es,xquad/zh"
)
# Collections about the same things ask what the other answers.
_ALIKE = {"clapnq-dev", "xquad/en"}
_MOST_QUESTIONS, _OF_EACH_OTHER = 200, 30
_SMALL, _SMALL_STORES = 20, 3
# The features of each group, which are those of kbproc.knowledge.search.probability; there the
# weights of cosine, size and length are higher than those learnt, because so foreign questions are
# told better.
_FEATURES = {
    "with cosine": ("words", "together", "matched", "cosine", "length"),
    "by words": ("words", "together", "matched", "reach", "length"),
    "unspaced": ("words", "together", "matched", "reach"),
}
_SIZES = {"with cosine": -0.6, "by words": -0.2, "unspaced": 0.0}
_UNANSWERABLE = "queries-unanswerable.jsonl"
# The weight of each kind in every collection: as many hits that answer as not.
_KINDS = {
    "own": 3.0,
    "words": 0.5,
    "removed": 1.0,
    "topic": 1.0,
    "foreign": 2.0,
    "foreign words": 0.5,
}


class Sample(Struct, frozen=True):
    """A hit and whether it answers. `third`: 2 is kept aside."""

    collection: str
    kind: str
    third: int
    evidence: dict[str, Any]
    answers: bool
    unspaced: bool

    @property
    def group(self) -> str:
        if self.evidence["cosine"] is not None:
            return "with cosine"
        return "unspaced" if self.unspaced else "by words"

    @property
    def offset(self) -> float:
        """The part of the store's size in the logit."""
        chunks = min(10_000, max(10, self.evidence["chunks"] or 0))
        return _SIZES[self.group] * math.log10(chunks)

    def features(self) -> list[float]:
        values = {
            **self.evidence,
            "reach": math.sqrt(self.evidence["reach"] or 0.0),
            "length": math.log1p(self.evidence["length"]),
        }
        return [*(values[name] for name in _FEATURES[self.group]), 1.0]


class Asker:
    """Searches one store for a collection's questions and others."""

    def __init__(self, name: str, library: Library, mode: str) -> None:
        self._name, self._library, self._mode = name, library, mode
        self._ids = names(library)

    def samples(self, kind: str, text: str, question: Question) -> Iterator[Sample]:
        """Yields the best hit, and for an own question the best one that does not answer."""
        kb = {"kb": _slug(question.part)} if question.part else {}
        page = call(
            self._library,
            "search",
            query=text[:2000],
            mode=self._mode,
            limit=10,
            explain=True,
            **kb,
        )
        sample = self._sampler(kind, text)
        hits = [(hit, self._ids[hit.source.document_id] in question.gains) for hit in page.results]
        if not hits:
            yield sample(kind, to_builtins(NOTHING), False)
            return
        yield sample(kind, hits[0][0].explain["evidence"], hits[0][1])
        others = (hit for hit, answers in hits if not answers)
        if kind == "own" and (other := next(others, None)) is not None:
            yield sample("removed", other.explain["evidence"], False)

    def _sampler(self, kind: str, text: str) -> Callable[[str, dict[str, Any], bool], Sample]:
        third = zlib.crc32(text.encode()) % 3
        unspaced = any(map(is_unspaced, parse_query(text).terms))
        return lambda kind, evidence, answers: Sample(
            self._name, kind, third, evidence, answers, unspaced
        )


def asked(
    name: str, collection: Collection, others: Iterable[Question], library: Library, mode: str
) -> Iterator[Sample]:
    """Yields the samples of a collection's questions, of words out of them, and of others."""
    asker, chance = Asker(name, library, mode), random.Random(1)
    texts = {one.id: f"{one.title} {one.text}" for one in collection.documents}
    own = _some([q for q in collection.questions if q.gains], _MOST_QUESTIONS)
    kbs = {kb.slug for kb in call(library, "kb.list")}
    for question in own:
        yield from asker.samples("own", question.text, question)
        present = frozenset(words(texts.get(next(iter(question.gains)), "")))
        if keywords := _keywords(question.text, chance, present):
            yield from asker.samples("words", keywords, question)
    for question in others:
        if question.part and _slug(question.part) not in kbs:
            continue
        yield from asker.samples("foreign", question.text, question)
        if keywords := _keywords(question.text, chance):
            yield from asker.samples("foreign words", keywords, question)


def unanswerable(name: str, file: Path, library: Library) -> Iterator[Sample]:
    """Yields the samples of questions on the topic that the collection does not answer."""
    for mode, group in (("hybrid", name), ("fts", f"{name}, words")):
        asker = Asker(group, library, mode)
        for line in file.read_text().splitlines() if file.exists() else ():
            text = json.loads(line)["text"]
            yield from asker.samples("topic", text, Question("", text, {}))


def _keywords(text: str, chance: random.Random, present: frozenset[str] | None = None) -> str:
    """Returns up to three of the question's longest words, for every third question."""
    terms = [word for word in dict.fromkeys(parse_query(text).terms) if not is_unspaced(word)]
    if present is not None:
        terms = [word for word in terms if word in present]
    longest = sorted(terms, key=len, reverse=True)[: chance.choice((1, 2, 2, 3))]
    return " ".join(longest) if chance.random() < 1 / 3 else ""


def _some(questions: Sequence[Question], most: int) -> list[Question]:
    return list(questions[:: max(1, len(questions) // most)][:most])


def small(name: str, collection: Collection, others: list[Question], store: Path) -> list[Sample]:
    """Returns samples of stores of twenty documents."""
    samples: list[Sample] = []
    answering = {id for question in collection.questions for id in question.gains}
    documents = [one for one in _documents(collection) if one["source_id"] in answering]
    for number in range(_SMALL_STORES):
        chosen = documents[number * _SMALL : (number + 1) * _SMALL]
        ids = {one["source_id"] for one in chosen}
        questions = [q for q in collection.questions if ids & q.gains.keys()]
        part = Collection(collection.name, collection.documents, questions[:40])
        library = filled(store.with_name(f"{store.name}-small-{number}"), chosen)
        some = others[number::_SMALL_STORES]
        samples += asked(f"{name}, 20 documents", part, some, library, "hybrid")
        library.close()
    return samples


# ------------------------------------------------------------------- learning


def learnt(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Returns the weights of a logistic regression, the constant last."""
    rows = np.array([sample.features() for sample in samples])
    offsets = np.array([sample.offset for sample in samples])
    answers = np.array([sample.answers for sample in samples], float)
    weights = _weights(samples)
    result = np.zeros(rows.shape[1])
    ridge = np.diag([*[1e-3] * (rows.shape[1] - 1), 1e-9])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-rows @ result - offsets))
        slope = rows.T @ (weights * (chance - answers)) + ridge @ result
        curve = (rows * (weights * chance * (1 - chance))[:, None]).T @ rows + ridge
        result -= np.linalg.solve(curve, slope)
    return result


def _weights(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Returns a weight for each sample: each collection counts alike, and each kind by _KINDS."""
    counts = Counter((sample.collection, sample.kind) for sample in samples)
    shares = np.array([_KINDS[s.kind] / counts[s.collection, s.kind] for s in samples])
    return shares / shares.sum()


# --------------------------------------------------------------------- tables


def levels(samples: Sequence[Sample]) -> Iterator[str]:
    """Yields for each collection how often the levels come."""
    yield "| | `none` of own | of foreign | `likely` of own | of foreign | of own, not answered |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in dict.fromkeys(one.collection for one in samples):
        group = [one for one in samples if one.collection == name]
        own, foreign, removed = _by_kind(group, "own", "foreign", "removed")
        columns = [
            _share(own, _is_none),
            _share(foreign, _is_none),
            _share(own, _is_likely),
            _share(foreign, _is_likely),
            _share(removed, _is_likely),
        ]
        yield f"| {name} | {' | '.join(columns)} |"


def _is_none(chance: float) -> bool:
    return chance < RELATED


def _is_likely(chance: float) -> bool:
    return chance >= LIKELY


def _by_kind(samples: Sequence[Sample], *kinds: str) -> list[list[float]]:
    return [[s.evidence["chance"] for s in samples if s.kind == kind] for kind in kinds]


def _share(chances: Sequence[float], holds: Callable[[float], bool]) -> str:
    return f"{sum(map(holds, chances)) / len(chances):.2f}" if chances else "–"


def reliability(samples: Sequence[Sample]) -> Iterator[str]:
    """Yields how many hits of about a probability answer, weighed as for learning."""
    yield "| probability | hits | mean | answer |"
    yield "| --- | --- | --- | --- |"
    weights = _weights(samples)
    chances = np.array([sample.evidence["chance"] for sample in samples])
    answers = np.array([sample.answers for sample in samples])
    for low in range(10):
        inside = (chances * 10).clip(0, 9.99).astype(int) == low
        if inside.any():
            mean, true = (
                np.average(x[inside], weights=weights[inside]) for x in (chances, answers)
            )
            count = inside.sum()
            yield f"| {low / 10:.1f}–{low / 10 + 0.1:.1f} | {count} | {mean:.2f} | {true:.2f} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.probability", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=Path, required=True)
    parser.add_argument("--sets", default=SETS)
    options = parser.parse_args()
    collections = {name: read(options.folder / name) for name in options.sets.split(",")}
    samples: list[Sample] = []
    for name, whole in collections.items():
        collection = whole
        others = list(_foreign(name, collections))
        store = options.stores / name.replace("/", "-")
        if not others:
            store, collection, others = _halved(store, collection)
        library = filled(store, _documents(collection))
        samples += asked(name, collection, others, library, "hybrid")
        samples += asked(f"{name}, words", collection, others, library, "fts")
        samples += unanswerable(name, options.folder / name / _UNANSWERABLE, library)
        library.close()
        samples += small(name, collection, others, store)
        print(f"{name}: {len(samples)} samples", flush=True)
    for group in ("with cosine", "by words", "unspaced"):
        chosen = [one for one in samples if one.group == group and one.third < 2]
        if chosen:
            weights = learnt(chosen).round(1).tolist()
            print(group, dict(zip((*_FEATURES[group], "constant"), weights, strict=True)))
    aside = [one for one in samples if one.third == 2]
    print("\n".join([*levels(aside), "", *reliability([s for s in aside if s.kind != "words"])]))
    topic = [s for s in aside if s.kind == "topic" and s.group == "with cosine"]
    shares = [_share(*_by_kind(topic, "topic"), holds) for holds in (_is_none, _is_likely)]
    print(f"\nOn the topic, not answered: none {shares[0]}, likely {shares[1]}")
    own = [one for one in aside if one.kind == "own"]
    certain = [one.answers for one in own if one.evidence["chance"] >= LIKELY]
    right = [one for one in own if one.answers and one.group == "with cosine"]
    retained = sum(one.evidence["chance"] >= LIKELY for one in right)
    print(
        f"\nOf the best hits that `only` keeps, {sum(certain) / len(certain):.2f} answer; in mode "
        f"hybrid it keeps {retained / len(right):.2f} of those that answer."
    )
    return 0


def _foreign(name: str, collections: dict[str, Collection]) -> Iterator[Question]:
    """Yields questions that the collection does not answer, in its own language."""
    parts = sorted({q.part for q in collections[name].questions if q.part}) or [None]
    for other, collection in collections.items():
        is_same = other == name or {name, other} == _ALIKE
        if not is_same and _language(other) == _language(name):
            some = _some([q for q in collection.questions if q.gains], _OF_EACH_OTHER)
            yield from (
                Question(one.id, one.text, {}, parts[number % len(parts)])
                for number, one in enumerate(some)
            )


def _halved(store: Path, collection: Collection) -> tuple[Path, Collection, list[Question]]:
    """Returns a collection of two parts, and questions of which the other part holds the answer."""
    halves = {one.id: f"half-{n // TOGETHER % 2}" for n, one in enumerate(collection.documents)}
    documents = [replace(one, part=halves[one.id]) for one in collection.documents]
    own = [replace(q, part=halves[next(iter(q.gains))]) for q in collection.questions if q.gains]
    other = {"half-0": "half-1", "half-1": "half-0"}
    foreign = [replace(q, gains={}, part=other[str(q.part)]) for q in _some(own, _MOST_QUESTIONS)]
    halved = Collection(collection.name, documents, own)
    return store.with_name(f"{store.name}-halves"), halved, foreign


def _language(name: str) -> str:
    return name.partition("/")[2] or "en"


if __name__ == "__main__":
    leave(main())
