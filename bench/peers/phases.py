"""Measures the peers, phase by phase.

Short actions take turns, a block of each peer at a time, so that load on the machine slows all of
them. A peer's calls are in runners/.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import take_turns
from bench.peers import given
from bench.peers.running import (
    ENTRIES,
    Entry,
    Running,
    disk_mib,
    first_answer,
    prepared,
    syncs_a_write,
)

CHANNELS = ("keyword", "vector", "hybrid")
_BLOCK = 20  # questions
_WARM = 40  # questions before the clock starts
_INSERTS_AT_ONCE = 50
_LONG_S = 60  # a load that took longer is not repeated


class Plan(NamedTuple):
    """The sizes of a run; `rounds` repeats each phase that is not split into blocks."""

    folder: Path
    entries: Sequence[Entry]
    documents: int = 10_000
    inserts: int = 1_500
    questions: int = 400
    rounds: int = 3

    @property
    def given(self) -> Path:
        return self.folder / "given"

    def store(self, entry: Entry) -> Path:
        return self.folder / f"{entry.key}-loaded"


Figures = dict[str, dict[str, Any]]


def measured(plan: Plan) -> Figures:
    """Returns all figures by peer."""
    figures: Figures = {entry.key: {} for entry in plan.entries}
    _say(f"making {plan.documents:,} documents")
    given.make(plan.given, max(plan.documents, plan.inserts), _WARM + plan.questions)
    for phase in (_loads, _first_answers, _searches, _inserts, _words_alone, _syncs):
        _say(phase.__name__.strip("_").replace("_", " "))
        phase(plan, figures)
    return figures


def _loads(plan: Plan, figures: Figures) -> None:
    """Loads all documents into an empty store, until searches find them."""
    seconds: dict[str, list[float]] = {entry.key: [] for entry in plan.entries}
    for _ in range(plan.rounds):
        for entry in plan.entries:
            if not seconds[entry.key] or min(seconds[entry.key]) < _LONG_S:
                seconds[entry.key].append(_loaded(plan, entry, figures[entry.key]))
    for entry in plan.entries:
        took = statistics.median(seconds[entry.key])
        figures[entry.key]["load_s"] = took
        figures[entry.key]["load_per_s"] = plan.documents / took
        figures[entry.key]["disk_mib"] = disk_mib(plan.store(entry))
        _say(f"  {entry.key}: {took:.1f} s")


def _loaded(plan: Plan, entry: Entry, figures: dict[str, Any]) -> float:
    folder = prepared(entry, plan.store(entry), plan.given, plan.documents)
    with Running(entry, folder, plan.given) as peer:
        for name in ("name", "versions", "channels", "called", "lacks"):
            figures[name] = peer.told[name]
        peer.ask("read", first=0, last=plan.documents)
        return float(peer.ask("load")["seconds"])


def _first_answers(plan: Plan, figures: Figures) -> None:
    """Measures the first answer of fresh processes, with files in the page cache."""
    for _ in range(2 * plan.rounds):
        for entry in plan.entries:
            took = first_answer(entry, plan.store(entry), plan.given)
            figures[entry.key].setdefault("first_answers", []).append(took)
    for entry in plan.entries:
        took = statistics.median(figures[entry.key].pop("first_answers"))
        figures[entry.key]["first_answer_s"] = took


def _searches(plan: Plan, figures: Figures) -> None:
    with ExitStack() as stack:
        peers = [
            stack.enter_context(Running(entry, plan.store(entry), plan.given))
            for entry in plan.entries
        ]
        for channel in CHANNELS:
            _channel(plan, figures, channel, [p for p in peers if channel in p.told["channels"]])
        for peer in peers:
            figures[peer.entry.key]["memory_mib"] = peer.memory_mib()


def _channel(plan: Plan, figures: Figures, channel: str, peers: list[Running]) -> None:
    times: dict[str, list[float]] = {peer.entry.key: [] for peer in peers}
    answers_of_peers: dict[str, given.Answers] = {peer.entry.key: {} for peer in peers}
    for peer in peers:
        peer.ask("ask", channel=channel, first=0, last=_WARM)
    for first, last in _blocks(_WARM, _WARM + plan.questions, _BLOCK):
        for peer in peers:
            answer = peer.ask("ask", channel=channel, first=first, last=last)
            times[peer.entry.key] += answer["seconds"]
            answers_of_peers[peer.entry.key] |= dict(
                zip(range(first, last), answer["found"], strict=True)
            )
    for key, seconds in times.items():
        if not any(answers_of_peers[key].values()):
            raise RuntimeError(f"{key} finds nothing by {channel}")
        figures[key][channel] = _percentiles(seconds)
        judged = given.recall_of_judged(plan.given, answers_of_peers[key])
        if judged is not None:
            figures[key][channel]["recall"] = judged
        if channel == "vector":
            figures[key]["recall"] = given.recall(plan.given, plan.documents, answers_of_peers[key])


def _percentiles(seconds: list[float]) -> dict[str, float]:
    hundredths = statistics.quantiles(seconds, n=100)
    return {"p50_s": statistics.median(seconds), "p99_s": hundredths[98]}


def _inserts(plan: Plan, figures: Figures) -> None:
    """Inserts documents into an empty store, with a commit each; then searches once."""
    with ExitStack() as stack:
        peers = [stack.enter_context(_emptied(plan, entry)) for entry in plan.entries]
        seconds = dict.fromkeys((peer.entry.key for peer in peers), 0.0)
        for first, last in _blocks(0, plan.inserts, _INSERTS_AT_ONCE):
            for peer in peers:
                seconds[peer.entry.key] += peer.ask("insert", first=first, last=last)["seconds"]
        for peer in peers:
            key, channel = peer.entry.key, peer.told["channels"][0]
            settled = peer.ask("settle")["seconds"]
            searched = peer.ask("ask", channel=channel, first=0, last=1)["seconds"][0]
            figures[key]["inserts_s"] = seconds[key]
            figures[key]["then_found_s"] = settled + searched
            _say(f"  {key}: {seconds[key]:.1f} s, then {settled + searched:.3f} s")


def _emptied(plan: Plan, entry: Entry, *more: str) -> Running:
    count = 0 if "--words" in more else plan.inserts
    folder = prepared(entry, plan.folder / f"{entry.key}-inserts", plan.given, count)
    peer = Running(entry, folder, plan.given, *more)
    peer.ask("read", first=0, last=plan.inserts)
    return peer


# Peers without vectors, and their writes: a commit each, or without waiting for answers.
_WORDS_ALONE = (
    ("sqlite", "insert"),
    ("kbproc", "insert"),
    ("kbproc", "insert_many"),
    ("bare", "insert"),
    ("bare", "insert_many"),
)


def _words_alone(plan: Plan, figures: Figures) -> None:
    """Measures writes without vectors: durable, with full-text index, a whole run at a time."""
    contests = [(key, how) for key, how in _WORDS_ALONE if key in figures]
    spent: dict[tuple[str, str], list[float]] = {contest: [] for contest in contests}

    def run(key: str, how: str) -> None:
        with _emptied(plan, ENTRIES[key], "--words") as peer:
            all_of_them = {"first": 0, "last": plan.inserts} if how == "insert" else {}
            written = peer.ask(how, **all_of_them)["seconds"]
            settled = peer.ask("settle")["seconds"]
            searched = peer.ask("ask", channel="keyword", first=0, last=1)["seconds"][0]
            spent[key, how].append(written)
            figures[key][f"words_{how}_then_found_s"] = settled + searched

    take_turns([lambda _, c=contest: run(*c) for contest in contests], plan.rounds)
    for (key, how), seconds in spent.items():
        figures[key][f"words_{how}_s"] = statistics.median(seconds)
        _say(f"  {key} {how}: {statistics.median(seconds):.2f} s")


def _syncs(plan: Plan, figures: Figures) -> None:
    """Counts the syncs of a write, which show whether "written" means on the disk."""
    if shutil.which("strace") is None:
        return
    for entry in plan.entries:
        figures[entry.key]["syncs_a_write"] = syncs_a_write(entry, plan.given, 20, 70)


def _blocks(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(first, last, size):
        yield start, min(start + size, last)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
