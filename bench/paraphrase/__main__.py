"""Measures search and confidence for questions in other words than their texts.

`python -m bench.paraphrase` prints a table for the texts behind the choice of thresholds and for
the texts kept aside; `--part aside` only the latter. Texts and questions were written for
this purpose: five kinds of text, and questions that share at most one word's stem with the text
that answers them. `on_topic` questions are about one of the texts, which does not answer them;
`foreign` ones are about something else altogether.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from bench.bulk_legs import call
from bench.eval_answers import auc, reply
from bench.filling import filled, names
from kbproc.base.pipes import leave
from kbproc.knowledge.app.library import Library

HERE = Path(__file__).parent
KINDS = ("handbook", "codedocs", "tickets", "notes", "conversation")


class SortedQuestion(Struct, frozen=True):
    """A question of one sort; `answer`: the id of the text that answers it, if any does.

    `sentences`: the numbers of the sentences that answer, each of which is enough.
    """

    sort: str
    question: str
    answer: str | None = None
    sentences: tuple[int, ...] = ()


def is_aside(number: int) -> bool:
    """Returns whether a kind's text of this number, from 0, is kept aside: every third is."""
    return number % 3 == 2


def read(aside: bool) -> tuple[list[dict[str, str]], list[SortedQuestion]]:
    """Returns the texts of one part and their questions, with every third foreign question."""
    texts: list[dict[str, str]] = []
    questions: list[SortedQuestion] = []
    for kind in KINDS:
        data = json.loads((HERE / f"{kind}.json").read_text())
        own = [text for n, text in enumerate(data["texts"]) if is_aside(n) == aside]
        ids = {text["id"] for text in own}
        texts += own
        questions += [
            SortedQuestion("paraphrased", one["question"], one["answer"], tuple(one["sentences"]))
            for one in data["paraphrased"]
            if one["answer"] in ids
        ]
        questions += [
            SortedQuestion("on_topic", one["question"])
            for one in data["on_topic"]
            if one["near"] in ids
        ]
        questions += [
            SortedQuestion("foreign", q)
            for n, q in enumerate(data["foreign"])
            if is_aside(n) == aside
        ]
    return texts, questions


def documents(texts: list[dict[str, str]]) -> list[dict[str, str]]:
    """Returns the texts as params of doc.create."""
    return [{"title": t["title"], "text": t["text"], "source_id": t["id"]} for t in texts]


class Reply(Struct, frozen=True):
    """A search's answer to a question."""

    question: SortedQuestion
    ranked: list[str]
    best: float
    confidence: str


def replies(
    library: Library, ids: dict[int, str], questions: list[SortedQuestion], mode: str
) -> Iterator[Reply]:
    for one in questions:
        page = call(library, "search", query=one.question, mode=mode, per_document=1, limit=10)
        yield Reply(
            one,
            [ids[hit.source.document_id] for hit in page.results],
            page.results[0].score if page.results else 0.0,
            page.confidence,
        )


def share(replies: list[Reply], holds: Callable[[Reply], bool]) -> str:
    return f"{sum(map(holds, replies)) / len(replies):.3f}" if replies else "-"


def bests(replies: list[Reply]) -> list[float]:
    return [reply.best for reply in replies]


def figures(replies_of_mode: list[Reply]) -> dict[str, str]:
    """Returns the shares of each sort of question."""
    by_sort = {
        sort: [reply for reply in replies_of_mode if reply.question.sort == sort]
        for sort in ("paraphrased", "on_topic", "foreign")
    }
    answered, on_topic, foreign = by_sort.values()
    return {
        "first": share(answered, lambda r: r.ranked[:1] == [r.question.answer]),
        "in three": share(answered, lambda r: r.question.answer in r.ranked[:3]),
        "none, answered": share(answered, lambda r: r.confidence == "none"),
        "none, foreign": share(foreign, lambda r: r.confidence == "none"),
        "likely, answered": share(answered, lambda r: r.confidence == "likely"),
        "likely, on topic": share(on_topic, lambda r: r.confidence == "likely"),
        "AUC of the best score": f"{auc(bests(answered), bests(foreign)):.3f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.paraphrase", description=__doc__)
    parser.add_argument("--part", choices=["chosen", "aside", "both"], default="both")
    parser.add_argument("--model", help="name or folder, as for model.use")
    options = parser.parse_args()
    model = None if options.model is None else {"kind": "onnx", "name": options.model}
    for aside in {"chosen": [False], "aside": [True], "both": [False, True]}[options.part]:
        texts, questions = read(aside)
        with tempfile.TemporaryDirectory() as scratch:
            library = filled(Path(scratch) / "store", documents(texts), model)
            ids = names(library)
            table = {
                m: figures(list(replies(library, ids, questions, m)))
                for m in ("hybrid", "vector", "fts")
            }
            answered = [
                (one.sort, bool(reply(library, ids, one.question).quotes)) for one in questions
            ]
            library.close()
        counts = ", ".join(f"{n} {sort}" for sort, n in Counter(o.sort for o in questions).items())
        print(
            "kept aside:" if aside else "chosen with:", f"{len(texts)} texts; questions: {counts}"
        )
        for name in table["hybrid"]:
            print(f"  {name:24}", *(f"{mode} {row[name]:8}" for mode, row in table.items()))
        for sort in ("paraphrased", "foreign", "on_topic"):
            own = [is_answered for one, is_answered in answered if one == sort]
            print(f"  chat answers {sort:12} {sum(own) / len(own):.3f}")
    return 0


if __name__ == "__main__":
    leave(main())
