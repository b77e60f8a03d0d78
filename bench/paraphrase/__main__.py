"""How well questions are found that are asked in other words, and how sure the store is of them.

`python -m bench.paraphrase` prints a table for the texts that thresholds were chosen with and for
those that were kept aside; `--part aside` only the latter. Texts and questions were written for
this purpose: five kinds of text, and questions that share at most one word's stem with the text
that answers them. `on_topic` questions are about one of the texts, which does not answer them;
`foreign` ones are about something else altogether.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.bulk_legs import call
from bench.eval_answers import auc
from kbproc.base.host import Host
from kbproc.base.pipes import leave
from kbproc.library.library import Library
from kbproc.models.answering.extractive import Extractive
from kbproc.models.answering.interface import Part
from kbproc.sessions import retrieval

HERE = Path(__file__).parent
KINDS = ("handbook", "codedocs", "tickets", "notes", "conversation")


class Asked(Struct, frozen=True):
    """A question of one sort; `answer` is the id of the text that answers it, if any does."""

    sort: str
    question: str
    answer: str | None = None


def is_aside(number: int) -> bool:
    """Returns whether a kind's text of this number, from 0, is kept aside: every third is."""
    return number % 3 == 2


def read(aside: bool) -> tuple[list[dict[str, str]], list[Asked]]:
    """The texts of one part, and the questions about them; foreign questions alternate."""
    texts: list[dict[str, str]] = []
    asked: list[Asked] = []
    for kind in KINDS:
        data = json.loads((HERE / f"{kind}.json").read_text())
        own = [text for n, text in enumerate(data["texts"]) if is_aside(n) == aside]
        ids = {text["id"] for text in own}
        texts += own
        asked += [
            Asked("paraphrased", one["question"], one["answer"])
            for one in data["paraphrased"]
            if one["answer"] in ids
        ]
        asked += [
            Asked("on_topic", one["question"]) for one in data["on_topic"] if one["near"] in ids
        ]
        asked += [
            Asked("foreign", q) for n, q in enumerate(data["foreign"]) if is_aside(n) == aside
        ]
    return texts, asked


def fill(texts: list[dict[str, str]], store: Path) -> tuple[Library, dict[int, str]]:
    """A store of these texts, every vector in place, and each document's text."""
    library = Library.open(store, host=Host(), cache=Path.home() / ".cache" / "kbproc")
    documents = [{"title": text["title"], "text": text["text"]} for text in texts]
    made = call(library, "doc.create", documents=documents)
    library.embedding.start()
    library.embedding.drain(lambda done, total: None)
    return library, {one.id: text["id"] for one, text in zip(made.documents, texts, strict=True)}


class Reply(Struct, frozen=True):
    """What a search and an answer made of a question."""

    asked: Asked
    ranked: list[str]
    best: float
    confidence: str
    is_answered: bool


def replies(
    library: Library, names: dict[int, str], asked: list[Asked], mode: str
) -> Iterator[Reply]:
    for one in asked:
        found = call(library, "search", query=one.question, mode=mode, per_document=1, limit=10)
        yield Reply(
            one,
            [names[hit.source.document_id] for hit in found.results],
            found.results[0].score if found.results else 0.0,
            found.confidence,
            answers(library, one.question),
        )


class _Listener:
    """Collects what an answerer says; stands in for a stream."""

    is_over = False

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def say(self, parts: list[Part]) -> None:
        self.parts += parts


def answers(library: Library, question: str) -> bool:
    """Returns whether `chat` answers the question rather than refusing it."""
    wanted = retrieval.Wanted(question=question, kbs=None)
    found = retrieval.find(library.store, wanted, now=library.store.host.now())
    listener: Any = _Listener()
    return Extractive().answer(found.prompt(wanted, ""), listener).status == "finished"


def share(replies: list[Reply], holds: Callable[[Reply], bool]) -> str:
    return f"{sum(map(holds, replies)) / len(replies):.3f}" if replies else "-"


def bests(replies: list[Reply]) -> list[float]:
    return [reply.best for reply in replies]


def figures(found: list[Reply]) -> dict[str, str]:
    """Shares of each sort of question."""
    by_sort = {
        sort: [reply for reply in found if reply.asked.sort == sort]
        for sort in ("paraphrased", "on_topic", "foreign")
    }
    answered, on_topic, foreign = by_sort.values()
    return {
        "first": share(answered, lambda r: r.ranked[:1] == [r.asked.answer]),
        "in three": share(answered, lambda r: r.asked.answer in r.ranked[:3]),
        "none, answered": share(answered, lambda r: r.confidence == "none"),
        "none, foreign": share(foreign, lambda r: r.confidence == "none"),
        "likely, answered": share(answered, lambda r: r.confidence == "likely"),
        "likely, on topic": share(on_topic, lambda r: r.confidence == "likely"),
        "AUC of the best score": f"{auc(bests(answered), bests(foreign)):.3f}",
        "chat answers": share(answered, lambda r: r.is_answered),
        "chat refuses foreign": share(foreign, lambda r: not r.is_answered),
        "chat refuses on topic": share(on_topic, lambda r: not r.is_answered),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.paraphrase", description=__doc__)
    parser.add_argument("--part", choices=["chosen", "aside", "both"], default="both")
    asked_for = parser.parse_args().part
    for aside in {"chosen": [False], "aside": [True], "both": [False, True]}[asked_for]:
        texts, asked = read(aside)
        with tempfile.TemporaryDirectory() as scratch:
            library, names = fill(texts, Path(scratch) / "store")
            table = {
                m: figures(list(replies(library, names, asked, m)))
                for m in ("hybrid", "vector", "fts")
            }
            library.close()
        print(
            "kept aside:" if aside else "chosen with:",
            f"{len(texts)} texts, {len(asked)} questions",
        )
        for name in table["hybrid"]:
            print(f"  {name:24}", *(f"{mode} {row[name]:8}" for mode, row in table.items()))
    return 0


if __name__ == "__main__":
    leave(main())
