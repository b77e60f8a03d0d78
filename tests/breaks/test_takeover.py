"""The owner ends or dies; an attached client takes over."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OpenSession
from tests.kit.faults import faults_of, note
from tests.kit.patience import LIVES, LONG, PATIENCE, until
from tests.kit.processes import (
    Client,
    Crowd,
    check_answers,
    check_once,
    held_after,
    holders,
    said,
    slow_embeddings,
    titles,
)
from tests.kit.talk import Message

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")

compared = faults_of("takeover")

KILLS = 200 if LONG else 3
MOST_MORE = 40  # writes under an owner, until it is killed
FILES = 150 if LONG else 64
CLIENTS, WRITES = 3, 12
RECORD = 32  # documents in a record of an ingest here, so that few files make several
BATCH = RECORD + 8  # the documents that an ingest reads ahead come on top
SMALL_RECORDS = f"""
from kbproc.knowledge.documents import revision

revision.RECORD_DOCUMENTS = {RECORD}
"""
WAYS: dict[str, Callable[[Client], None]] = {
    "its stdin ends": Client.leave,
    "SIGTERM": lambda client: client.kill(signal.SIGTERM),
    "kill -9": Client.kill,
}


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


def items(client: Client, id: int) -> list[Any]:
    return [event["item"] for event in client.events[id] if event["type"] == "item"]


def seqs(client: Client, id: int) -> list[int]:
    return [item["seq"] for item in items(client, id)]


def methods(client: Client, id: int) -> list[str]:
    return [item["method"] for item in items(client, id)]


def warnings(client: Client, id: int) -> int:
    return client.types(id).count("warning")


# --------------------------------------------------------------- everything in flight


class Busy:
    """A client with requests of every kind in flight."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        folder = crowd.folder / f"docs{number}"
        folder.mkdir()
        for n in range(FILES):
            text = "\n\n".join(f"Paragraph {k} of {n} in {number}." for k in range(20))
            (folder / f"{n:03}.md").write_text(f"# File {number}-{n}\n\n{text}\n")
        self.files = [f"File {number}-{n}" for n in range(FILES)]
        self.client = client = crowd.join(actor=f"agent{number}")
        self._folder = folder.name
        self.names: list[str] = []
        self.writes: list[int] = []
        self.reads: list[int] = []
        self.subscription = client.start("events.subscribe", after_seq=0)
        self.later = client.start("ping", min_seq=100_000)
        self._write_and_read()

    def _write_and_read(self) -> None:
        for n in range(len(self.names), len(self.names) + WRITES):
            self.names.append(name := f"{self.client.pid}-{n}")
            token = {"client_token": name} if n % 2 else {}
            self.writes.append(self.client.create(name, **token))
        self.reads += [self.client.start("doc.list", limit=5) for _ in range(WRITES)]
        self.reads += [
            self.client.start("search", query="words", mode="fts") for _ in range(WRITES)
        ]

    def bring_files(self) -> None:
        self.ingest = self.client.start("doc.ingest", paths=[self._folder])

    def wait(self) -> None:
        """Starts a wait for the missing vectors, an export, and more writes and reads."""
        self.waits = self.client.start("doc.wait")
        self.export = self.client.start("store.export")
        self._write_and_read()
        for id in (self.ingest, self.waits):
            self.client.wait_for(lambda id=id: self.client.types(id), "init")

    def check(self, seq: int) -> None:
        """Checks that every request is answered and every record is seen once."""
        client = self.client
        for id in [*self.writes, *self.reads, self.ingest, self.export, self.waits]:
            assert "result" in client.answer(id), (client.sent[id], client.answer(id))
        counts = client.answer(self.ingest)["result"]["data"]
        assert (counts["added"], counts["failed"]) == (FILES, 0)
        client.wait_for(lambda: seq in seqs(client, self.subscription), f"record {seq}")
        for id in (self.subscription, self.later):
            assert client.answers[id] == [], "what waits must not hear of an end"
            client.cancel(id)
            assert client.answer(id)["error"]["data"]["type"] == "operation.cancelled"
        assert seqs(client, self.subscription) == list(range(1, seq + 1))
        exported = [item["id"] for item in items(client, self.export) if item["type"] == "document"]
        assert len(exported) == len(set(exported)), "exported twice"
        assert warnings(client, self.subscription) == 1
        for id in (self.ingest, self.waits, self.export):
            assert warnings(client, id) <= 1
        check_answers(client)


@pytest.mark.parametrize("way", WAYS)
def test_everything_in_flight(crowd: Crowd, way: str) -> None:
    """Ingests are cut off in their middle: the owner keeps so many sources that at least one
    has written a record, and so few that at most one has come to its end."""
    held_sources = CLIENTS * (WRITES + BATCH)
    assert CLIENTS * BATCH < 2 * FILES
    with slow_embeddings(crowd.store, longest=LIVES) as released:
        program = SMALL_RECORDS + held_after(held_sources)
        owner = crowd.join(program=program, drain_seconds=0.1)
        busy = [Busy(crowd, number) for number in range(CLIENTS)]
        for b in busy:
            b.bring_files()
        client = busy[0].client
        client.wait_for(lambda: "doc.ingest" in methods(client, busy[0].subscription), "a record")
        for b in busy:
            b.wait()
        cut = [b for b in busy if not b.client.answers[b.ingest]]
        assert len(cut) >= CLIENTS - 1
        assert not any(b.client.answers[b.waits] for b in busy)
        WAYS[way](owner)
        if way != "kill -9":
            released.set()  # else the owner waits for its embeddings before it ends
        code = owner.gone()
        assert code == (-signal.SIGKILL if way == "kill -9" else 0)
        heir = crowd.owner(unlike=[owner])
        for b in busy:
            b.client.wait_for(lambda b=b: warnings(b.client, b.subscription), "the warning")
        released.set()
        for b in busy:
            b.client.answer(b.ingest)
            assert warnings(b.client, b.ingest) == (b in cut), "whether it was asked again"
            for id in b.writes:
                b.client.answer(id)
        # Every `doc.wait` must have its answer before the last client is checked.
        heir.data("doc.wait")
        seq = heir.data("ping")["seq"]
        for b in busy:
            b.check(seq)
        every = [name for b in busy for name in (*b.names, *b.files)]
        check_once(heir, acknowledged=every, sent=every)
        assert heir.data("doctor", deep=True)["healthy"]
    note(
        "takeover",
        f"{way}, while others have writes, reads, ingests, waits, subscriptions and "
        "exports in flight",
        "every request answered once, every write there once; streams go on without gap or "
        "repeat, after a warning",
    )


POINTS = [
    "log.write",
    "log.torn",
    "log.written",
    "log.synced",
    "catalog.commit",
    "catalog.committed",
]


@pytest.mark.parametrize(
    ("point", "token"),
    [
        (point, token)
        for n, point in enumerate(POINTS)
        for token in (False, True)
        if LONG or token == n % 2
    ],
)
def test_a_write_cut_off(crowd: Crowd, point: str, token: bool) -> None:
    """The write happens once when it is sent again, whether its record reached the disk or not."""
    in_catalog = point.startswith("catalog.")
    # The first entry is folded in at once, later ones at the next read.
    owner = crowd.join(kill_at=f"{point}:{2 if in_catalog else 4}")
    guest, other = crowd.join(), crowd.join()

    def write(n: int) -> Message:
        more = {"client_token": f"{n}"} if token else {}
        if not in_catalog:
            return guest.answer(guest.create(f"{n}", **more))
        # A document waits to be folded in, an entry does not.
        entry = {"title": f"{n}", "body": f"words of {n}", **more}
        return guest.answer(guest.start("knowledge.store", **entry))

    for n in range(5):
        answer = write(n)
        assert answer["result"]["data"]["title"] == f"{n}"
    assert owner.gone() == -signal.SIGKILL
    assert titles(other) == {f"{n}": 1 for n in range(5)}
    check_answers(guest)
    if token:
        assert write(2)["result"]["meta"]["duplicate"] is True
    note(
        "takeover",
        "kill -9 between a write's record and its answer",
        "the write is there once, and answered once",
    )


def test_a_batch_cut_off(crowd: Crowd) -> None:
    crowd.join(kill_at="log.synced:4")
    guest = crowd.join()
    batch = [
        {
            "jsonrpc": "2.0",
            "id": f"b{n}",
            "method": "doc.create",
            "params": {"title": f"{n}", "text": f"words of {n}"},
        }
        for n in range(6)
    ]
    guest.send(batch)
    guest.wait_for(lambda: guest.batches, "the batch's answer")
    assert titles(guest) == {f"{n}": 1 for n in range(6)}
    assert [answer["id"] for answer in guest.batches[0]] == [f"b{n}" for n in range(6)]
    assert all("result" in answer for answer in guest.batches[0]), guest.batches[0]
    assert len(guest.batches) == 1
    note("takeover", "kill -9 in the middle of a batch", "one answer to it, each write there once")


def test_a_refusal_stays_a_refusal(crowd: Crowd) -> None:
    """The new owner carries out an earlier plan if the store has not changed."""
    owner, guest = crowd.join(), crowd.join()
    guest.answer(guest.create("x"))
    plan = guest.error("doc.delete", ids=[1])["plan"]["plan_hash"]
    owner.kill()
    owner.gone()
    assert guest.error("doc.delete", ids=[1], confirm="0" * 32)["type"] == "resource.plan_stale"
    assert guest.error("doc.get", id=9)["type"] == "resource.not_found"
    assert "data" in guest.ask("doc.delete", ids=[1], confirm=plan)["result"]
    assert titles(guest) == {}


def test_each_keeps_what_is_its_own(crowd: Crowd, tmp_path: Path) -> None:
    """The new owner and its attached clients keep their own actor, scopes, folder and limits."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.md").write_text(f"# {name}\n\nwords\n")
    owner = crowd.join()
    ann = crowd.join(
        cwd=tmp_path / "a", actor="ann", scopes="doc:read,doc:write", max_line_bytes=2000
    )
    bob = crowd.join(cwd=tmp_path / "b", actor="bob", scopes="doc:read,doc:write,admin")
    for round in range(2):
        owner.kill()
        owner.gone()
        for client in (ann, bob) if round == 0 else (bob,):
            client.data("doc.ingest", paths=["x.md"])
            assert client.error("doc.ingest", paths=["../x.md"])["type"] in {
                "path.outside_root",
                "resource.not_found",
            }
            assert client.error("kb.create", slug="no")["type"] == "auth.insufficient_scope"
        if round == 0:
            assert ann.error("events.read")["type"] == "auth.insufficient_scope"
            ann.send("x" * 3000)
            ann.wait_for(lambda: ann.answers[None], "input.too_large")
            owner = ann
            if crowd.owner().pid == bob.pid:  # no client is left that could take over
                break
    assert [r["actor"] for r in bob.data("events.read", after_seq=1, types=["doc.written"])] in (
        ["ann", "bob"],
        ["bob", "ann"],
    )
    check_answers(bob)


def test_cancel_after_a_takeover(crowd: Crowd) -> None:
    owner, guest, other = (crowd.join() for _ in range(3))
    waits = guest.start("ping", min_seq=99)
    follows = guest.start("events.subscribe", after_seq=0)
    guest.wait_for(lambda: seqs(guest, follows), "the first record")
    owner.kill()
    owner.gone()
    for id in (waits, follows):
        guest.cancel(id)
        assert guest.answer(id)["error"]["data"]["type"] == "operation.cancelled"
    other.answer(other.create("x"))
    check_answers(guest)
    assert seqs(guest, follows) == [1]


# ------------------------------------------------------------------ one after the other


def test_subscribers_across_three_takeovers(crowd: Crowd) -> None:
    clients = crowd.together(6)
    follows = {client.pid: client.start("events.subscribe", after_seq=0) for client in clients}
    written: list[str] = []
    for way in WAYS.values():
        for n, client in enumerate(crowd.living):
            client.answer(client.create(f"{len(written)}-{n}"))
            written.append(f"{len(written)}-{n}")
        owner = crowd.owner()
        for client in crowd.living:
            if client is not owner:
                client.create(name := f"{len(written)}-in-flight")
                written.append(name)
        way(owner)
        owner.gone()
    remaining = crowd.living
    assert len(remaining) == 3
    for client in remaining:
        for id in client.sent:
            if id != follows[client.pid]:
                client.answer(id)
    seq = remaining[0].answer(remaining[0].create("last"))["result"]["meta"]["seq"]
    for client in remaining:
        id = follows[client.pid]
        client.wait_for(lambda c=client, i=id: seq in seqs(c, i), f"record {seq}")
        assert seqs(client, id) == list(range(1, seq + 1))
        assert warnings(client, id) == 3
        client.cancel(id)
        client.answer(id)
        check_answers(client)
    note(
        "takeover",
        "three takeovers in a row under subscriptions",
        "every record seen once, in order; the index without a gap; a warning each time",
    )


# Params of a write with a token, a null token (which is none), and no token.
TOKENS: tuple[Callable[[str], dict[str, Any]], ...] = (
    lambda name: {"client_token": name},
    lambda name: {"client_token": None},
    lambda name: {},
)


class Writer:
    """Writes until `stop` or until its process dies; several writes are in flight at once."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.client = crowd.join(actor=f"agent{number}")
        self.names: dict[int | str, str] = {}
        self._number = number
        self._room = threading.Semaphore(4)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        for n in range(100_000):
            if self._over.is_set() or self.client.ended:
                return
            name = f"{self._number}-{n}"
            try:
                id = self.client.create(name, **TOKENS[n % 3](name))
            except OSError:
                return  # killed
            self.names[id] = name
            if n >= 4:
                self.client.hear(id - 4)  # a few in flight, not more

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def acknowledged(self) -> set[str]:
        return {self.names[id] for id in self.client.acknowledged() if id in self.names}


def acknowledged(writers: list[Writer]) -> int:
    """Counts acknowledged writes, those of ended writers included."""
    return sum(len(writer.client.acknowledged()) for writer in writers)


def test_killed_again_and_again(crowd: Crowd, open_session: OpenSession) -> None:
    """Each owner is killed after it has acknowledged some writes."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # shown if it fails
    chance = random.Random(seed)
    writers = [Writer(crowd, number) for number in range(5)]
    dead: list[Client] = []
    for _ in range(KILLS):
        owner = crowd.owner(unlike=dead)
        marks = {w.client: max(list(w.names), default=0) for w in writers}

        def written(marks: dict[Client, int | str] = marks) -> bool:
            """True once a write that was sent under the new owner is acknowledged."""
            return any(
                marks.get(w.client, 0) < id  # type: ignore[operator]
                for w in writers
                for id in w.client.acknowledged()
                if w.client.alive
            )

        def answered(marks: dict[Client, int | str] = marks) -> bool:
            """True once the older writes are: one that ends two owners is not asked of a third."""
            return all(
                id in w.client.acknowledged()
                for w in writers
                for id in list(w.names)  # which its thread goes on to fill
                if w.client.alive and id <= marks.get(w.client, 0)  # type: ignore[operator]
            )

        until(written, "a write under the new owner", crowd.told)
        until(answered, "the writes that the owner before it has left", crowd.told)
        more = acknowledged(writers) + chance.randrange(MOST_MORE)
        until(lambda more=more: acknowledged(writers) >= more, "more of them", crowd.told)
        owner.kill()
        owner.gone()
        dead.append(owner)
        writers.append(Writer(crowd, len(writers)))  # a new writer joins
        if chance.random() < 0.5:  # a writer leaves after its writes are answered
            leaver = chance.choice([w for w in writers if w.client.alive])
            leaver.stop()
            assert leaver.client.end() == 0, f"seed {seed}; {leaver.client.told()}"
            check_answers(leaver.client)
            dead.append(leaver.client)
            writers.append(Writer(crowd, len(writers)))
    for writer in writers:
        writer.stop()
    for writer in writers:
        if writer.client.alive:
            refused = [a for id in writer.names if "error" in (a := writer.client.answer(id))]
            assert refused == [], f"seed {seed}"
            check_answers(writer.client)
    done = set().union(*(writer.acknowledged() for writer in writers))
    sent = [name for writer in writers for name in writer.names.values()]
    last = crowd.owner()
    check_once(last, acknowledged=done, sent=sent)
    print(f"\n{KILLS} kills: {len(done)} of {len(sent)} writes acknowledged")
    for client in crowd.living:
        client.leave()
    assert all(client.gone() == 0 for client in crowd.living), f"seed {seed}"
    assert holders(crowd.store) == []
    session = open_session()
    assert session.store.log.verify() == session.store.seq
    session.embedded()
    note(
        "takeover",
        "the owner killed -9 again and again, each time after some of the writes that it "
        "acknowledged, with tokens, null ones and none, while processes come and go",
        "every acknowledged write there exactly once",
    )


def test_commands_while_owners_die(crowd: Crowd) -> None:
    """Commands never fail because of a takeover: they get an answer, or take over themselves."""
    codes = []
    for n in range(6 if LONG else 3):
        owner, _ = crowd.join(), crowd.join()
        commands = [
            crowd.command("call", "doc.create", f"title={n}-{k}", "text=x") for k in range(3)
        ]
        owner = crowd.owner()
        until(lambda c=commands[0]: c.poll() is not None, "a command's end")
        owner.kill()
        codes += [said(command) for command in commands]
        owner.gone()
    assert [result for result in codes if result.code != 0] == []
    counts = titles(crowd.owner())
    assert set(counts.values()) == {1} and len(counts) == len(codes)
    note("takeover", "kill -9 under commands that are attached", "all exit with 0; each write once")


# ------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("way", WAYS)
def test_an_owner_does_not_stay_for_the_others(crowd: Crowd, way: str) -> None:
    owner, *others = (crowd.join() for _ in range(3))
    waits = others[0].start("events.subscribe", after_seq=0)
    WAYS[way](owner)
    owner.gone()
    assert titles(others[1]) == {}
    others[0].cancel(waits)
    check_answers_after(others[0], waits)


def check_answers_after(client: Client, id: int) -> None:
    client.answer(id)
    check_answers(client)


def test_all_leave_at_once(crowd: Crowd, open_session: OpenSession) -> None:
    """All clients leave while they write: each gets all its answers, and no process remains."""
    clients = crowd.together(4)
    sent = []
    for n, client in enumerate(clients):
        for k in range(15):
            client.create(f"{n}-{k}")
            sent.append(f"{n}-{k}")
    for client in clients:
        client.leave()
    assert [client.gone() for client in clients] == [0] * 4, crowd.told()
    for client in clients:
        check_answers(client)
        assert len(client.acknowledged()) == 15
    assert holders(crowd.store) == [] and not (crowd.store / "kbproc.sock").exists()
    check_once(last := crowd.join(), acknowledged=sent, sent=sent)
    last.end()
    open_session()
    note(
        "takeover",
        "all processes end in the same moment, writes in flight",
        "each hears its answers; no process and no socket is left",
    )
