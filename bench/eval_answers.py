"""Measures answers made of sentences: what they quote, and whom they refuse.

`python -m bench.eval_answers FOLDER`: FOLDER holds collections in BEIR form, whose questions have
an `answer`. It writes bench/answers.json, which `python -m bench.quality` puts into
docs/evidence/search.md. The paraphrases of bench/paraphrase are measured, too. Every
third question is asked; `--fit` asks the others, on which rules are chosen, and writes nothing.

An answer holds the answer if it quotes it from a text that answers: the few words of the answer
themselves, or else one of the sentences that the answer was made from. It is beside the point if it
quotes a text that does not answer. Of a collection with `queries-unanswerable.jsonl` each question
also has two numbers: the best hit's score, and the chance that it answers. Thresholds are chosen on
every other question and judged on the rest.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from bench.eval_evidence import content
from bench.filling import filled, kept, names
from bench.measure import ROOT
from kbproc.base.pipes import leave
from kbproc.base.text.verbatim import pieces
from kbproc.engine.models.answering.extractive import MAY_HOLD, Extractive
from kbproc.engine.models.answering.interface import AnswerPart
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search import search
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.probability import LIKELY, RELATED
from kbproc.knowledge.sessions.retrieval import RetrievalRequest, find

RESULTS = ROOT / "bench" / "answers.json"
SETS = "clapnq-dev,xquad/en,xquad/de,xquad/es,xquad/zh"
PARAPHRASES = "paraphrases kept aside"
_UNANSWERABLE = "queries-unanswerable.jsonl"
# The share of a sentence's words that an answer made from it has.
_MADE_FROM = 0.6
_THIRD = 3


class JudgedQuestion(Struct, frozen=True):
    """A question, the ids of the texts that answer it, and the quotes of which one is needed."""

    text: str
    golds: frozenset[str]
    evidence: tuple[str, ...]


class Reply(Struct, frozen=True):
    """An answer: its quotes, each with the id of its text."""

    quotes: list[tuple[str, str]]
    first: str | None
    is_tentative: bool

    def holds(self, question: JudgedQuestion) -> bool:
        quoted = (plain(text) for id, text in self.quotes if id in question.golds)
        return any(evidence in text for text in quoted for evidence in question.evidence)

    def is_beside(self, question: JudgedQuestion) -> bool:
        return any(id not in question.golds for id, _ in self.quotes)


class Listener:
    """Collects an answerer's output in place of a stream."""

    is_over = False

    def __init__(self) -> None:
        self.parts: list[AnswerPart] = []

    def say(self, parts: Sequence[AnswerPart]) -> None:
        self.parts += parts

    def warn(self, text: str) -> None:
        """Ignores a warning."""

    def when_over(self, act: Any) -> None:
        """Does nothing, because the reader stays."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.eval_answers", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default=SETS, help="folders in it, comma-separated")
    parser.add_argument("--fit", action="store_true", help="ask the questions to choose rules on")
    parser.add_argument("--stores", type=Path, help="where the filled stores are kept")
    options = parser.parse_args()
    figures = {}
    for name in filter(None, options.sets.split(",")):
        folder = options.folder / name
        with kept(options.stores) as stores:
            library = filled(stores / name.replace("/", "-"), documents(folder))
            figures[name] = measured(library, some(questions(folder), options.fit))
            print(name, figures[name], flush=True)
            if (folder / _UNANSWERABLE).exists():
                print_thresholds(library, folder)
            library.close()
    figures[PARAPHRASES] = of_paraphrases(aside=not options.fit)
    print(PARAPHRASES, figures[PARAPHRASES], flush=True)
    if not options.fit:
        RESULTS.write_text(json.dumps({**results(), **figures}, indent=1) + "\n", encoding="utf-8")
    return 0


def some(questions: Sequence[JudgedQuestion], fit: bool) -> list[JudgedQuestion]:
    """Returns every third question, or the others."""
    thirds = enumerate(questions)
    return [one for number, one in thirds if (number % _THIRD == _THIRD - 1) != fit]


def results() -> dict[str, Any]:
    """Returns collection → the figures of its answers."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def documents(folder: Path) -> list[dict[str, str]]:
    """Returns a collection's documents as params of doc.create."""
    return [
        {"title": one.get("title") or one["_id"], "text": one["text"], "source_id": one["_id"]}
        for one in lines(folder / "corpus.jsonl")
    ]


def questions(folder: Path) -> list[JudgedQuestion]:
    """Returns the questions with an answer, and what an answer has to quote."""
    texts = {one["_id"]: one["text"] for one in lines(folder / "corpus.jsonl")}
    golds: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        question, document, _ = line.split("\t")
        golds.setdefault(question, set()).add(document)
    judged = []
    for one in lines(folder / "queries.jsonl"):
        own = golds.get(one["_id"])
        if own and "answer" in one:
            evidence = evidence_of(one["answer"], [texts[id] for id in sorted(own)])
            judged.append(JudgedQuestion(one["text"], frozenset(own), evidence))
    return judged


def evidence_of(answer: str, golds: Sequence[str]) -> tuple[str, ...]:
    """Returns the answer if a text holds it, else the sentences that it was made from."""
    if any(plain(answer) in plain(text) for text in golds):
        return (plain(answer),)
    own = content(answer)
    shares = {
        piece.text: len(content(piece.text) & own) / max(1, len(content(piece.text)))
        for text in golds
        for piece in pieces(text)
    }
    least = min(_MADE_FROM, max(shares.values(), default=0))
    return tuple(plain(text) for text, share in shares.items() if share >= least)


def plain(text: str) -> str:
    return " ".join(text.casefold().split())


def of_paraphrases(*, aside: bool) -> dict[str, float]:
    """Returns the figures of one part of the paraphrases."""
    from bench.paraphrase import __main__ as paraphrase  # which imports this module

    texts, sorted_questions = paraphrase.read(aside)
    by_id = {text["id"]: [piece.text for piece in pieces(text["text"])] for text in texts}
    judged = [
        JudgedQuestion(
            one.question,
            frozenset({one.answer}),
            tuple(plain(by_id[one.answer][at]) for at in one.sentences),
        )
        for one in sorted_questions
        if one.answer
    ]
    with tempfile.TemporaryDirectory() as scratch:
        library = filled(Path(scratch) / "store", paraphrase.documents(texts))
        figures = measured(library, judged)
        library.close()
    return figures


def measured(library: Library, questions: Sequence[JudgedQuestion]) -> dict[str, float]:
    """Returns the shares of the answers that hold the answer, and so on.

    `first`: search has a text that answers first. `tentative`: of the answers those that say that
    they may hold the answer.
    """
    ids = names(library)
    replies = [reply(library, ids, one.text) for one in questions]
    pairs = list(zip(replies, questions, strict=True))
    firsts = [(got, one) for got, one in pairs if got.first in one.golds]
    answered = [(got, one) for got, one in pairs if got.quotes]
    return {
        "questions": len(questions),
        "first": share(got.first in one.golds for got, one in pairs),
        "holds": share(got.holds(one) for got, one in pairs),
        "holds_of_first": share(got.holds(one) for got, one in firsts),
        "beside": share(got.is_beside(one) for got, one in answered),
        "refused": share(not got.quotes for got in replies),
        "tentative": share(got.is_tentative for got, _ in answered),
        "characters": round(
            median(sum(len(text) for _, text in got.quotes) for got, _ in answered)
        ),
    }


def share(flags: Iterable[bool]) -> float:
    every = list(flags)
    return round(sum(every) / len(every), 3) if every else 0.0


def reply(library: Library, ids: dict[int, str], question: str) -> Reply:
    """Returns the answer that `chat` gives without an endpoint."""
    request = RetrievalRequest(question=question, kbs=None)
    retrieved = find(library.store, request, now=library.store.host.now())
    listener = Listener()
    Extractive().answer(retrieved.prompt(request, ""), listener)
    sources = {passage.n: ids[passage.source] for passage in retrieved.passages}
    quotes = [(sources[n], part.text) for part in listener.parts for n in part.passages or ()]
    return Reply(
        quotes,
        sources.get(1),
        any(part.text.startswith(MAY_HOLD) for part in listener.parts),
    )


# ------------------------------------------------------------------ thresholds of the chance


class BestHit(Struct, frozen=True):
    """The best hit of a question: its score, the chance that it answers, and whether chat refuses
    the question for it.
    """

    score: float
    chance: float
    is_refused: bool


def print_thresholds(library: Library, folder: Path) -> None:
    """Prints how well scores and chances tell the answerable questions from the others."""
    answerable, others = (
        [best_hit(library, one["text"]) for one in lines(folder / name)]
        for name in ("queries.jsonl", _UNANSWERABLE)
    )
    refused, rightly = (share(one.is_refused for one in hits) for hits in (answerable, others))
    print(f"chat refuses {refused:.3f} of the answerable, {rightly:.3f} of the others")
    for member, name in (("score", "best score"), ("chance", "chance")):
        yes, no = ([getattr(one, member) for one in hits] for hits in (answerable, others))
        print(f"{name}: {len(yes)} answerable, {len(no)} not; AUC {auc(yes, no):.3f}")
        halves = [(yes[0::2], no[0::2]), (yes[1::2], no[1::2])]
        for (ours, theirs), (judged, other) in (halves, halves[::-1]):
            least = max(sorted({*ours, *theirs}), key=lambda at: accuracy(ours, theirs, at))
            print(f"  threshold {least:.3f}: right {accuracy(judged, other, least):.3f}")
    for level, least in (("related", RELATED), ("likely", LIKELY)):
        own = sum(y >= least for y in yes) / len(yes)
        below = sum(n < least for n in no) / len(no)
        print(f"{level} from {least}: {own:.3f} of the answerable, {1 - below:.3f} of the others")


def auc(yes: list[float], no: list[float]) -> float:
    """Returns how often a question with an answer scores higher than one without."""
    wins = sum((y > n) + (y == n) / 2 for y in yes for n in no)
    return wins / (len(yes) * len(no))


def accuracy(yes: list[float], no: list[float], least: float) -> float:
    right = sum(y >= least for y in yes) + sum(n < least for n in no)
    return right / (len(yes) + len(no))


def best_hit(library: Library, question: str) -> BestHit:
    now = library.store.host.now()
    result = search.run(library.store, Search(query=question), now=now)
    hits, evidence = result.results.results, result.evidence
    is_refused = evidence.level == "none" or evidence.lacks_answer
    return BestHit(hits[0].score if hits else 0.0, evidence.chance, is_refused)


if __name__ == "__main__":
    leave(main())
