"""Measures searches for turns of conversations: `python -m bench.conversations LOCOMO`.

LOCOMO is a folder in BEIR form whose documents are turns (conv, session, speaker, date). Each of
its sessions becomes a conversation of a store, each conversation's sessions a knowledge base, and
each question is asked there. It prints nDCG@10 of the turns, and for how many questions one of the
first, of the first three and of the first ten turns answers; the third of the questions that is
kept aside has a line of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.bulk_legs import call
from bench.filling import kept
from kbproc.base.host import Host, environment
from kbproc.base.pipes import leave
from kbproc.base.settings.config import load
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.search.evaluation.measures import ndcg

_TURN = re.compile(r"turn (\d+)")
_THIRD = 3
_LIMIT = 24
_WRONG_SPEAKER = "adversarial"


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.conversations", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=Path, help="where the filled store is kept")
    options = parser.parse_args()
    with kept(options.stores) as stores:
        library, ids = filled(stores / "conversations", options.folder)
        rows = [(one, *ranked(library, ids, one)) for one in questions(options.folder)]
        library.close()
    for part, is_aside in (("two thirds", False), ("the third kept aside", True)):
        some = [row for n, row in enumerate(rows) if (n % _THIRD == _THIRD - 1) == is_aside]
        own = [row for row in some if row[0].category != _WRONG_SPEAKER]
        wrong = [row for row in some if row[0].category == _WRONG_SPEAKER]
        gains = [ndcg(turns, dict.fromkeys(one.answers, 1.0), 10) for one, turns, _ in own]
        shares = [
            sum(not one.answers.isdisjoint(turns[:count]) for one, turns, _ in own) / len(own)
            for count in (1, 3, 10)
        ]
        confident_shares = [
            sum(confidence != "none" for *_, confidence in group) / len(group)
            for group in (own, wrong)
        ]
        print(
            f"{part}: {len(own)} questions, nDCG@10 {sum(gains) / len(gains):.3f}, the first turn "
            f"answers {shares[0]:.3f}, one of three {shares[1]:.3f}, of ten {shares[2]:.3f}; "
            f"confident for {confident_shares[0]:.3f}, and of those of the wrong speaker for "
            f"{confident_shares[1]:.3f}"
        )
    return 0


if __name__ == "__main__":
    leave(main())
