"""`python -m bench.asks`: the cost of a hundred simultaneous answers for writes beside them.

There are an owner, a process that asks, one that writes, and an endpoint on this machine that
pauses between words and fails now and then. It prints how long a write takes at rest and beside
the answers, how long a first word is on its way, and how the answers ended.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from bench import corpus, real_text
from bench.measure import KBPROC, Child, aligned, answer, request
from tests.kit import llm

_CHUNKS = 1000
_WORDS = 60  # the words of an answer
_PACE_S = 0.02  # the pause between two words
_AT_REST = 300  # writes
_ALONE = 20  # answers
_OF_A_TEXT = 12  # words of a question
_PAUSE_S = 0.005  # the pause between two writes
_MOST_TIMES, _MOST_S = 4.0, 0.05  # limits for a write beside answers; one must hold
_MOST_FIRST_S = 0.06
_FAULTS: list[list[llm.Step]] = [
    [llm.refuse(429, Retry_After="1")],
    [llm.refuse(503)],
    [llm.say("Half "), llm.cut],
    [llm.raw(b"data: {oops\n\n")],
]


class AnswerTimes(NamedTuple):
    """How the answers ended, and how long each first word was on its way."""

    ends: Counter[str]
    first_s: list[float]


class AskFigures(NamedTuple):
    """Seconds: of writes at rest and beside the answers, of the first words of single answers."""

    rest: list[float]
    beside: list[float]
    alone: list[float]
    all_at_once: AnswerTimes


def main() -> int:
    """Returns 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.asks", description=__doc__)
    parser.add_argument("--asks", type=int, default=100)
    count = parser.parse_args().asks
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    endpoint = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    endpoint.start()
    with tempfile.TemporaryDirectory(prefix="kbproc-asks-") as folder:
        store = Path(folder) / "store"
        corpus.build_store(store, _CHUNKS)
        figures = _measure(store, ours.recv(), count)
    ours.send("end")
    endpoint.join()
    return _tell(figures)


def _serve(pipe: Connection) -> None:
    with llm.endpoint(_script) as endpoint:
        pipe.send(endpoint.url)
        pipe.recv()


def _script(question: str) -> list[llm.Step]:
    chance = random.Random(question)
    if chance.random() < 0.1:
        return chance.choice(_FAULTS)
    words = [step for _ in range(_WORDS) for step in (_pause, llm.say("word "))]
    return [_moment, *words, llm.finish()]


def _moment(reply: llm.Reply) -> None:
    """Says the present time as the first word; processes of one machine share the clock."""
    llm.say(f"{time.monotonic()} ")(reply)


def _pause(reply: llm.Reply) -> None:
    time.sleep(_PACE_S)


def _measure(store: Path, url: str, count: int) -> AskFigures:
    named = {"KBPROC_LLM_URL": url, "KBPROC_LLM_MODEL": "toy"}
    argv = [*KBPROC, "serve", "--store", str(store), "--max-in-flight", str(2 * count)]
    with ExitStack() as stack:
        owner, asker, writer = (_started(stack, argv, named) for _ in range(3))
        questions = _questions(count)
        _ask(owner, questions[:1])  # the first chat loads modules
        alone = [took for one in questions[:_ALONE] for took in _ask(asker, [one]).first_s]
        remaining = iter(range(_AT_REST))
        rest = _writes(writer, "rest", lambda: next(remaining, None) is not None)
        answers: list[AnswerTimes] = []
        asking = threading.Thread(target=lambda: answers.append(_ask(asker, questions)))
        asking.start()
        beside = _writes(writer, "beside", asking.is_alive)
        asking.join()
    return AskFigures(rest, beside, alone, answers[0])


def _started(stack: ExitStack, argv: list[str], named: dict[str, str]) -> Child:
    """Starts the processes; the first one owns the store."""
    child = stack.enter_context(Child(argv, **named))
    child.until(_is_ready)
    return child


def _questions(count: int) -> list[str]:
    """Returns beginnings of stored texts, so that every question reaches the endpoint."""
    return [" ".join(text.split()[:_OF_A_TEXT]) for text in real_text.texts(count)]


def _is_ready(message: dict[str, Any]) -> bool:
    return bool(message.get("params", {}).get("type") == "ready")


def _writes(writer: Child, name: str, go_on: Callable[[], bool]) -> list[float]:
    took = []
    while go_on():
        line = request("doc.create", title=f"{name} {len(took)}", text=f"Said {name} {len(took)}.")
        began = time.monotonic()
        answer(writer.ask(line))
        took.append(time.monotonic() - began)
        time.sleep(_PAUSE_S)
    return took


def _ask(asker: Child, questions: list[str]) -> AnswerTimes:
    """Asks all questions at once; returns when every answer has ended."""
    for id, question in enumerate(questions):
        chat = {"jsonrpc": "2.0", "id": id, "method": "chat", "params": {"question": question}}
        asker.send(json.dumps(chat).encode() + b"\n")
    ends: Counter[str] = Counter()
    first: dict[int, float] = {}
    while ends.total() < len(questions):
        message = json.loads(asker.line())
        now, event = time.monotonic(), message.get("params", {})
        if "delta" in event and event["request_id"] not in first:
            word = event["delta"].split()[0]
            first[event["request_id"]] = now - float(word) if "." in word else 0.0
        elif "result" in message:
            ends[message["result"]["data"]["status"]] += 1
        elif "error" in message:
            ends[message["error"]["data"]["type"]] += 1
    return AnswerTimes(ends, [took for took in first.values() if took])


def _tell(figures: AskFigures) -> int:
    rows = [["", "count", "median", "p99", "longest"]]
    for name, took in (
        ("a write at rest", figures.rest),
        ("a write beside the answers", figures.beside),
        ("a first word of one answer", figures.alone),
        ("a first word of all at once", figures.all_at_once.first_s),
    ):
        summary = (median(took), _p99(took), max(took))
        rows.append([name, f"{len(took)}", *(f"{seconds * 1000:.1f} ms" for seconds in summary)])
    print(aligned(rows))
    print(", ".join(f"{end}: {count}" for end, count in sorted(figures.all_at_once.ends.items())))
    hindered = _p99(figures.beside) > max(_MOST_TIMES * _p99(figures.rest), _MOST_S)
    late = _p99(figures.alone) > _MOST_FIRST_S
    print("A write is hindered." if hindered else "No write is hindered.")
    print("First words are late." if late else "First words are in time.")
    return int(hindered or late)


def _p99(took: list[float]) -> float:
    return quantiles(took, n=100, method="inclusive")[98]


if __name__ == "__main__":
    sys.exit(main())
