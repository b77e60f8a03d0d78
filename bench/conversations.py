"""Measures searches for turns of conversations: `python -m bench.conversations LOCOMO`.

LOCOMO is a folder in BEIR form whose documents are turns (conv, session, speaker, date). Each of
its sessions becomes a conversation of a store, each conversation's sessions a knowledge base, and
each question is asked there. It prints nDCG@10 of the turns, and for how many questions one of the
first, of the first three and of the first ten turns answers; then for how many a hook quotes turns,
for how many one that answers, and how many of the quoted turns answer. The third of the questions
that is kept aside has lines of its own; `--part chosen` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.bulk_legs import call
from bench.filling import kept
from bench.hooks import config_of, context_for
from bench.measure import serve
from kbproc.base.host import Host, environment
from kbproc.base.pipes import leave
from kbproc.base.settings.config import load
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search.evaluation.measures import ndcg
from kbproc.surfaces.hooks.asking import HookQuestion

_TURN = re.compile(r"turn (\d+)")
_QUOTED_TURN = re.compile(r"^\[.*\bturn (\d+)[^\]]*\] .*?document (\d+)", re.MULTILINE)
_THIRD = 3
_LIMIT = 24
_WRONG_SPEAKER = "adversarial"
# The two thirds on which rules are chosen, and the third that is kept aside.
_CHOSEN, _ASIDE = "chosen", "aside"


class AskedQuestion(Struct, frozen=True):
    """A question, its knowledge base, the ids of the turns that answer it, and its category."""

    text: str
    kb: str
    answers: frozenset[str]
    category: str


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def questions(folder: Path) -> list[AskedQuestion]:
    """Returns the questions that turns answer, or whose turns another speaker said."""
    answers: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        question, turn, _ = line.split("\t")
        answers[question].add(turn)
    return [
        AskedQuestion(one["text"], one["conv"], frozenset(answers[one["_id"]]), one["category"])
        for one in lines(folder / "queries.jsonl")
        if one["_id"] in answers
    ]


def filled(store: Path, folder: Path) -> tuple[Library, dict[tuple[str, int], str]]:
    """Returns the library, and the id of each turn by title and number."""
    config = load(environment())
    is_new = not store.exists()
    library = Library.open(store, host=Host(), cache=config.cache)
    sessions: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for turn in lines(folder / "corpus.jsonl"):
        sessions[turn["conv"], turn["title"]].append(turn)
    ids: dict[tuple[str, int], str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, ((conv, title), turns) in enumerate(sessions.items()):
            name = f"{conv} {title}"
            ids |= {(name, at): turn["_id"] for at, turn in enumerate(turns, 1)}
            if is_new:
                path = Path(scratch) / f"session-{number}.jsonl"
                path.write_text(as_conversation(name, turns), encoding="utf-8")
                if not any(kb.slug == conv for kb in call(library, "kb.list")):
                    call(library, "kb.create", slug=conv)
                call(library, "doc.ingest", paths=[str(path)], kb=conv)
    library.embedding.start()
    library.embedding.drain(lambda stage, done, total: None)
    library.tidy()
    return library, ids


def as_conversation(title: str, turns: list[dict[str, Any]]) -> str:
    """Returns a session as kbproc stores one."""
    at = datetime.strptime(turns[0]["date"], "%I:%M %p on %d %B, %Y").isoformat()
    records: list[dict[str, Any]] = [
        {"kbproc": "conversation", "version": 1, "client": "chat", "title": title}
    ]
    for number, turn in enumerate(turns, 1):
        text = turn["text"].removeprefix(f"{turn['speaker']}: ")
        head = {"turn": number, "at": f"{at}Z", "name": turn["speaker"], "role": "user"}
        records.append({**head, "text": text})
    return "".join(json.dumps(record) + "\n" for record in records)


def ranked(
    library: Library, ids: dict[tuple[str, int], str], question: AskedQuestion
) -> tuple[list[str], str]:
    """Returns the ids of the turns that are found, best first, and the confidence."""
    params = {"query": question.text, "kb": question.kb, "limit": _LIMIT}
    page = call(library, "search", **params)
    turns = []
    for hit in page.results:
        number = _TURN.search(hit.source.section or "")
        if number is not None:
            turns.append(ids[hit.source.title, int(number[1])])
    return list(dict.fromkeys(turns)), page.confidence


class AskedRow(Struct, frozen=True):
    """A question, the turns that are found, the confidence, and the turns that a hook quotes."""

    question: AskedQuestion
    turns: list[str]
    confidence: str
    quoted: list[str]

    def answers_in(self, turns: Sequence[str]) -> int:
        return len(self.question.answers.intersection(turns))


def quoted(context: str, ids: dict[tuple[str, int], str], titles: dict[int, str]) -> list[str]:
    """Returns the ids of the turns that a hook quotes. `titles`: of the documents."""
    places = _QUOTED_TURN.findall(context)
    return list(dict.fromkeys(ids[titles[int(id)], int(number)] for number, id in places))


def measured(store: Path, folder: Path, parts: Collection[str]) -> dict[str, list[AskedRow]]:
    """Returns the rows of each part's questions."""
    library, ids = filled(store, folder)
    questions_by_part = {
        part: [
            one
            for number, one in enumerate(questions(folder))
            if (number % _THIRD == _THIRD - 1) == (part == _ASIDE)
        ]
        for part in parts
    }
    pages = {
        part: [ranked(library, ids, one) for one in some]
        for part, some in questions_by_part.items()
    }
    titles = {one.id: one.title for one in call(library, "doc.list", limit=1000)}
    library.close()
    with serve(store), closing(HookQuestion(config_of(store, None), store)) as asking:
        return {
            part: [
                AskedRow(
                    one, *page, quoted(context_for(asking, store, one.text, one.kb), ids, titles)
                )
                for one, page in zip(some, pages[part], strict=True)
            ]
            for part, some in questions_by_part.items()
        }


def share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def report(own: Sequence[AskedRow], wrong: Sequence[AskedRow]) -> str:
    """Returns the figures of questions, and of those that name the wrong speaker."""
    gains = [ndcg(row.turns, dict.fromkeys(row.question.answers, 1.0), 10) for row in own]
    first, three, ten = (
        share([row.answers_in(row.turns[:count]) > 0 for row in own]) for count in (1, 3, 10)
    )
    confident, confident_wrong = (
        share([row.confidence != "none" for row in rows]) for rows in (own, wrong)
    )
    contexts = [row for row in own if row.quoted]
    right = share([row.answers_in(row.quoted) > 0 for row in own])
    passages = sum(len(row.quoted) for row in contexts)
    right_passages = sum(row.answers_in(row.quoted) for row in contexts) / max(1, passages)
    return (
        f"{len(own)} questions, nDCG@10 {sum(gains) / len(gains):.3f}, the first turn answers "
        f"{first:.3f}, one of three {three:.3f}, of ten {ten:.3f}; confident for {confident:.3f}, "
        f"and of those of the wrong speaker for {confident_wrong:.3f}\n"
        f"  hooks quote for {len(contexts) / len(own):.3f}, and an answer for {right:.3f}; of "
        f"{passages} passages {right_passages:.3f} answer; of the wrong speaker they quote for "
        f"{share([bool(row.quoted) for row in wrong]):.3f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.conversations", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=Path, help="where the filled store is kept")
    parser.add_argument("--part", choices=[_CHOSEN, _ASIDE], help="one part of the questions")
    options = parser.parse_args()
    parts = [options.part] if options.part else [_CHOSEN, _ASIDE]
    with kept(options.stores) as stores:
        rows = measured(stores / "conversations", options.folder, parts)
    for part, some in rows.items():
        own = [row for row in some if row.question.category != _WRONG_SPEAKER]
        wrong = [row for row in some if row.question.category == _WRONG_SPEAKER]
        print(f"{part}: {report(own, wrong)}", flush=True)
    return 0


if __name__ == "__main__":
    leave(main())
