"""kill -9 while session logs are added: no turn is lost, none is there twice."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import OpenSession
from tests.kit import chats
from tests.kit.faults import bytes_of
from tests.kit.patience import LONG, until
from tests.kit.records import repeated
from tests.kit.talk import Process, Session, as_bytes, request

KILLS = 100 if LONG else 2
LOGS = 5
MOST_TURNS = 30  # added to a log between two kills; a segment has some 40
RUN = """
import os, runpy
os.environ["HOME"] = {home!r}
runpy.run_module("tests.kit.fixed", run_name="__main__", alter_sys=True)
"""


def texts(session: Session, kb: str) -> dict[str, str]:
    """Returns the text of each document by its path."""
    return {
        document["source"]["path"]: session.data("doc.get", id=document["id"], text=True)["text"]
        for document in session.data("doc.list", kb=kb, limit=1000)
    }


def grow(folder: Path, rng: random.Random, turns: list[int], lines: list[bytes]) -> None:
    """Adds turns to the logs; the client is still writing the last line of one of them."""
    for number in range(LOGS):
        turns[number] += rng.randrange(1, MOST_TURNS)
        log = own_log(number, lines[: turns[number]])
        (folder / f"{number}.jsonl").write_bytes(log[: -rng.choice([1, 1, 40])])


def own_log(number: int, lines: list[bytes]) -> bytes:
    """Returns a log whose questions no other log has, because it would be taken for a copy."""
    return b"".join(lines).replace(b" about tides", b" of ship %d about tides" % number)


def test_killed_while_logs_are_added(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(53)
    store, home = tmp_path / "store", tmp_path / "home"
    folder = home / ".claude" / "projects" / "crane"
    folder.mkdir(parents=True)
    turns, lines = [1] * LOGS, chats.long_log(1 + KILLS * MOST_TURNS)
    for _ in range(KILLS):
        grow(folder, rng, turns, lines)
        victim = Process(store, cwd=tmp_path, program=RUN.format(home=str(home))).ready()
        is_first = victim.ask(0, "doc.list")["result"]["data"] == []
        confirm = approval(victim) if is_first else {}
        # The sources of a log's segments are stored before the record that names them.
        place = store / rng.choice(["log", "sources"])
        before = size_of(place)
        victim.send(as_bytes(request(2, "chats.add", **confirm)))
        until(partial(has_grown, place, before), f"a change in {place.name}")
        victim.stop()
    for number in range(LOGS):
        (folder / f"{number}.jsonl").write_bytes(own_log(number, lines[: turns[number]]))
    monkeypatch.setenv("HOME", str(home))
    session = open_session()
    assert chats.add(session)["failed"] == 0
    session.data("kb.create", slug="fresh")
    session.data("doc.ingest", paths=[str(folder)], kb="fresh")
    assert texts(session, "default") == texts(session, "fresh")
    assert len(texts(session, "fresh")) > LOGS
    assert repeated(session.store) == []
    assert session.data("doctor", deep=True)["healthy"]


def approval(victim: Process) -> dict[str, str]:
    """Returns the param that approves of reading the logs for the first time."""
    error = victim.ask(1, "chats.add")["error"]["data"]
    return {"confirm": error["plan"]["plan_hash"]}


def has_grown(place: Path, size: int) -> bool:
    return size_of(place) > size


def size_of(place: Path) -> int:
    return bytes_of(place) if place.exists() else 0
