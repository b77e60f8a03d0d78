"""`python -m bench.hooks [COLLECTIONS]`: how long hooks take, and what they add to prompts.

It runs `kbproc hook prompt` as a client does: attached to an owner, cold, beside an ingest, and
while owners are killed; and `kbproc hook tool` beside an owner. With a folder of collections
(locomo, clapnq-dev) it asks their questions and counts the answers that hold a passage which the
collection judges relevant, and the questions without an answer that get nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from bench import corpus, real_text
from bench.bulk_legs import call
from bench.measure import KBPROC, aligned, answer, environment, request, serve
from bench.wire_legs import Setting
from kbproc.base.host import Host
from kbproc.base.settings.config import Config
from kbproc.knowledge.app.library import Library
from kbproc.surfaces.hooks import prompt
from kbproc.surfaces.hooks.asking import HookQuestion
from kbproc.surfaces.hooks.memory import Memory
from kbproc.surfaces.hooks.options import TOKENS, options_of

_PATIENT = ("--deadline-ms", "60000")
_IN_SESSION = 20  # prompts
_BYTES_IN_TOKEN = 4  # an average of English
_NAMED = 40  # files that the store names
_UNKNOWN = ("without an answer", "of another collection")
_PLACE = re.compile(r"^\[.*\] .*document (\d+)\b", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hooks")
    parser.add_argument("collections", type=Path, nargs="?")
    parser.add_argument("--prompts", type=int, default=1000, help="in each leg")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.prompts:
            _print(_latencies(folder, options.prompts))
        if options.collections:
            _print(_shares(folder, options.collections))
    return 0


def _print(rows: Iterable[list[str]]) -> None:
    sys.stdout.write(aligned(list(rows)) + "\n")
    sys.stdout.flush()


# --------------------------------------------------------------------------- latency


def _latencies(folder: Path, count: int) -> Iterator[list[str]]:
    setting = Setting(folder=folder, quick=False, files=None)
    store = setting.store(setting.small, "onnx")
    prompts = [Event("prompt", {"prompt": text}) for text in real_text.queries(count)]
    yield ["leg", "hooks", "p50", "p95", "p99", "over 1 s"]
    with serve(store) as owner:
        answer(owner.ask(request("search", query="warm")))
        yield _row("attached", _timed(store, prompts))
        for number in range(_NAMED):
            title = f"rates_{number}.py is generated"
            answer(owner.ask(request("knowledge.store", title=title, body="Edit its source.")))
        for leg, acts in _acts(count).items():
            yield _row(leg, _timed(store, acts))
    yield _row("cold, words only", _timed(store, prompts))
    yield _row("beside an ingest", _beside_an_ingest(folder, store, prompts))
    yield _row("while owners are killed", _while_owners_die(store, prompts))


class Event(NamedTuple):
    """One event of a client: the hook's name, and the members that the client sends."""

    hook: str
    members: dict[str, Any]


def _acts(count: int) -> dict[str, list[Event]]:
    """Returns leg → events of tools; a session gets what names a file once."""

    def event(**tool_input: str) -> Event:
        members = {"hook_event_name": "PreToolUse", "tool_name": "any", "tool_input": tool_input}
        return Event("tool", members)

    numbers = range(count)
    return {
        "an edit of a file that is named": [
            event(file_path=f"rates_{number % _NAMED}.py", content="x") for number in numbers
        ],
        "an edit of a file that is not": [
            event(file_path=f"sums_{number}.py", content="x") for number in numbers
        ],
        "a command that only looks": [event(command="ls -la")] * count,
    }


def _row(leg: str, seconds: list[float]) -> list[str]:
    cuts = statistics.quantiles(seconds, n=100)
    figures = [f"{cuts[at - 1] * 1000:.0f} ms" for at in (50, 95, 99)]
    return [leg, str(len(seconds)), *figures, str(sum(each > 1 for each in seconds))]


def _timed(
    store: Path, events: Iterable[Event], before: Callable[[int], None] = lambda number: None
) -> list[float]:
    """Returns the seconds from the start of each hook to its end. `before` comes first."""
    return [_seconds(store, number, each, before) for number, each in enumerate(events)]


def _seconds(store: Path, number: int, client_event: Event, before: Callable[[int], None]) -> float:
    before(number)
    session = f"{client_event.hook}-{number // _IN_SESSION}"
    event = {**client_event.members, "session_id": session, "cwd": str(store)}
    command = [*KBPROC, "hook", client_event.hook, "--store", str(store), *_PATIENT]
    started = time.perf_counter()
    subprocess.run(
        command,
        input=json.dumps(event).encode(),
        stdout=subprocess.DEVNULL,
        env=environment(),
        check=True,
    )
    return time.perf_counter() - started


def _beside_an_ingest(folder: Path, store: Path, prompts: list[Event]) -> list[float]:
    """Adds copies of a folder, each to a knowledge base of its own, until the prompts are done."""
    corpus.markdown_files(folder / "files", 300)
    ended = threading.Event()

    def add() -> None:
        for number in itertools.count():
            if ended.is_set():
                return
            _kbproc(store, "kb", "create", f"copy-{number}")
            _kbproc(store, "add", str(folder / "files"), "--kb", f"copy-{number}", "--no-wait")

    with serve(store) as owner:
        answer(owner.ask(request("search", query="warm")))
        thread = threading.Thread(target=add)
        thread.start()
        try:
            return _timed(store, prompts)
        finally:
            ended.set()
            thread.join()


def _kbproc(store: Path, *words: str) -> None:
    env = environment(KBPROC_STORE=str(store))
    subprocess.run([*KBPROC, *words], env=env, capture_output=True, check=True)


def _while_owners_die(store: Path, prompts: list[Event]) -> list[float]:
    """Kills the owner before every tenth prompt; the client that is attached then takes over."""
    serves = [serve(store), serve(store)]

    def kill(number: int) -> None:
        if number % 10 == 0:
            owner = serves.pop(0)
            owner.process.kill()
            owner.__exit__()
            serves.append(serve(store))

    try:
        return _timed(store, prompts, kill)
    finally:
        for child in serves:
            child.__exit__()


# --------------------------------------------------------------------------- shares


class Question(NamedTuple):
    """A question, its conversation's knowledge base, and the documents that answer it."""

    text: str
    kb: str | None
    relevant: set[str]


class Share(NamedTuple):
    """A context's size in bytes, and whether one of its passages is a relevant one."""

    size: int
    holds_answer: bool


def _shares(folder: Path, collections: Path) -> Iterator[list[str]]:
    yield ["questions", "process", "count", "stay empty", "hold a relevant passage", "tokens"]
    for name in ("locomo", "clapnq-dev"):
        source = collections / name
        if not source.is_dir():
            continue
        store = folder / name
        ids = _filled(store, _lines(source / "corpus.jsonl"))
        questions = _questions(source) | {"of another collection": _foreign(collections, name)}
        with serve(store), closing(HookQuestion(config_of(store, None), store)) as asking:
            yield from _rows_of((name, "attached"), asking, store, questions, ids)
        with closing(HookQuestion(config_of(store, None), store)) as asking:
            yield from _rows_of((name, "cold"), asking, store, questions, ids)


def _filled(store: Path, documents: list[dict[str, Any]]) -> dict[int, str]:
    """Fills a store, with a knowledge base for each conversation; returns id → name."""
    library = Library.open(store, host=Host(), cache=_cache())
    try:
        kbs = dict.fromkeys(each["conv"] for each in documents if "conv" in each)
        for kb in kbs:
            call(library, "kb.create", slug=kb)
        ids = {}
        for each in documents:
            kb = {"kb": each["conv"]} if "conv" in each else {}
            text = {"title": each["title"] or each["_id"], "text": each["text"], **kb}
            ids[call(library, "doc.create", **text).id] = each["_id"]
        library.embedding.start()
        library.embedding.drain(lambda stage, done, total: None)
        library.tidy()
        return ids
    finally:
        library.close()


def _cache() -> Path:
    from kbproc.base.host import environment as read
    from kbproc.base.settings.config import load

    return load(read()).cache


def _questions(source: Path) -> dict[str, list[Question]]:
    """Returns kind → questions."""
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (source / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if float(score) > 0:
            relevant[query].add(document)
    judged = [each for each in _lines(source / "queries.jsonl") if each["_id"] in relevant]
    # An adversarial question names the wrong speaker: its turn is there, and answers nothing.
    kinds = {
        "with an answer": [each for each in judged if each.get("category") != "adversarial"],
        "of the wrong speaker": [each for each in judged if each.get("category") == "adversarial"],
    }
    unanswerable = source / "queries-unanswerable.jsonl"
    if unanswerable.exists():
        kinds["without an answer"] = _lines(unanswerable)
    return {
        kind: [
            Question(each["text"], each.get("conv"), relevant[each["_id"]]) for each in questions
        ]
        for kind, questions in kinds.items()
        if questions
    }


def _foreign(collections: Path, name: str) -> list[Question]:
    """Returns questions that the collection knows nothing about."""
    other = "clapnq-dev" if name == "locomo" else "locomo"
    kb = "conv-26" if name == "locomo" else None
    lines = _lines(collections / other / "queries.jsonl")[:300]
    return [Question(each["text"], kb, set()) for each in lines]


def _rows_of(
    names: tuple[str, str],
    asking: HookQuestion,
    store: Path,
    questions: dict[str, list[Question]],
    ids: dict[int, str],
) -> Iterator[list[str]]:
    for kind, of_kind in questions.items():
        answers = [_asked(asking, store, question, ids) for question in of_kind]
        contexts = [each for each in answers if each.size]
        answered_count = sum(each.holds_answer for each in contexts)
        tokens = sum(each.size for each in contexts) / max(1, len(contexts)) / _BYTES_IN_TOKEN
        yield [
            f"{names[0]}, {kind}",
            names[1],
            str(len(answers)),
            f"{1 - len(contexts) / len(answers):.1%}",
            "" if kind in _UNKNOWN else f"{answered_count / max(1, len(contexts)):.1%}",
            f"{tokens:.0f}",
        ]


def _asked(asking: HookQuestion, store: Path, question: Question, ids: dict[int, str]) -> Share:
    context = context_for(asking, store, question.text, question.kb)
    documents = {ids[int(id)] for id in _PLACE.findall(context)}
    return Share(len(context.encode()), bool(documents & question.relevant))


def context_for(asking: HookQuestion, store: Path, text: str, kb: str | None) -> str:
    """Returns what a hook says to a prompt; "" for nothing."""
    query = prompt.query_of(text)
    if not query:
        return ""
    memory = Memory(store, None, str(store))
    tokens = TOKENS["prompt"]
    return prompt.context(asking, config_of(store, kb), query, memory, tokens, (), store)


def config_of(store: Path, kb: str | None) -> Config:
    flags = ["--store", str(store), *(() if kb is None else ("--kb", kb))]
    return options_of(["prompt", *flags]).config(store)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    raise SystemExit(main())
