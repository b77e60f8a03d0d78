"""The log's surface: events.read with its filters, events.verify, and events.subscribe."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.events import codec
from kbproc.engine.events.document import FileFailed
from kbproc.engine.events.kb import KbUpdated
from kbproc.engine.events.upkeep import Erased
from kbproc.engine.log import record as records
from kbproc.engine.log.record import Position, Record
from kbproc.knowledge.history import feed
from kbproc.surfaces.wire.connection import Connection
from kbproc.surfaces.wire.outbox import Outbox
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE, until
from tests.kit.shell import Run, environment, in_process
from tests.kit.talk import Kept, Message, Process, Session, as_bytes, cancel, request

ITEM = b'"type":"item"'


def test_what_happened_since_and_until(session: Session) -> None:
    host: Any = session.store.host
    host.pass_until("2026-01-01T10:00:00+00:00")
    session.data("doc.create", title="A", text="alpha", client_token="a")
    host.pass_until("2026-01-02T10:00:00+00:00")
    session.data("doc.create", title="B", text="beta")
    host.pass_until("2026-01-03T10:00:00+00:00")
    session.data("doc.create", title="C", text="gamma")

    def read(**params: Any) -> list[str]:
        page = session.ask("events.read", types=["doc.written"], **params)["result"]
        assert page["meta"]["has_more"] is False
        return [record["ts"][:10] for record in page["data"]]

    assert read(since="2026-01-02") == ["2026-01-02", "2026-01-03"]
    assert read(since="2026-01-02T10:00:00Z", until="2026-01-03") == ["2026-01-02"]
    assert read(until="2026-01-02T10:00:00Z") == ["2026-01-01"]
    assert read(since="2026-01-04") == []
    every = session.data("events.read", since="2026-01-02T00:00:00+01:00")
    assert [record["ts"][:10] for record in every] == ["2026-01-02", "2026-01-03"]
    error = session.error("events.read", since="yesterday")
    assert error["field"] == "$.params.since"


class Client:
    """A separate connection to a session's service that can subscribe."""

    def __init__(self, session: Session, outbox: Any = None, actor: str = "reader") -> None:
        self.outbox: Any = outbox or Kept()
        peer = msgspec.structs.replace(session.connection.peer, actor=actor)
        self.connection = Connection(session.service, peer, self.outbox)

    def send(self, id: int | str, method: str, /, **params: Any) -> None:
        self.connection.receive(as_bytes(request(id, method, **params)))

    def subscribe(self, id: int | str = "s", **params: Any) -> Client:
        self.send(id, "events.subscribe", **params)
        assert self.params()["type"] == "init"
        return self

    def cancel(self, id: int | str = "s") -> None:
        self.connection.receive(as_bytes(cancel(id)))

    def message(self) -> Message:
        return json.loads(self.outbox.take())  # type: ignore[no-any-return]

    def params(self) -> Message:
        return self.message()["params"]  # type: ignore[no-any-return]

    def items(self, count: int, index: int = 1) -> list[Message]:
        """Returns the next items; checks that their indexes continue from `index`."""
        events = [self.params() for _ in range(count)]
        assert [e["type"] for e in events] == ["item"] * count
        assert [e["index"] for e in events] == list(range(index, index + count))
        return [e["item"] for e in events]

    def ended(self) -> Message:
        """Returns the data of the error that ended the subscription, which is the last message."""
        return self.message()["error"]["data"]  # type: ignore[no-any-return]


def seqs(items: list[Message]) -> list[int]:
    return [item["seq"] for item in items]


def write(session: Session, count: int, *, size: int = 0, actor: str = "writer") -> int:
    """Writes `count` records of about `size` bytes in one commit; returns the last seq."""

    def turn(lane: Any) -> int:
        for number in range(count):
            event = KbUpdated(slug="default", name=f"{number}", description="d" * size)
            seq: int = lane.append([event], actor=actor, method="kb.update")
        return seq

    return session.store.commit(turn)


def ready(session: Session) -> Session:
    session.receive(), session.receive()
    return session


# ---------------------------------------------------------------------------- pages


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A store whose log has many kinds of events by several actors."""
    folder = tmp_path_factory.mktemp("told")
    session = ready(Session(folder / "store", cwd=folder))
    other = Client(session, actor="other")
    for number in range(1, 9):
        session.data("doc.create", title=f"Doc {number}", text=f"Words of {number}.")
    session.data("kb.create", slug="aside", client_token="a token")
    for number in range(3):
        session.data("doc.create", kb="aside", title=f"Aside {number}", text="Some more words.")
    for id in (1, 2, 1):
        other.send(id, "doc.update", id=id, title=f"Changed {id}", client_token=f"{id}")
        other.message()
    other.send(1, "doc.update", id=3, text="Other words altogether.")
    other.message()
    (folder / "file.md").write_text("# A file\n\nWith words.\n")
    session.data("doc.ingest", paths=["file.md"], client_token="ingest")
    hash = session.error("kb.delete", slug="aside")["plan"]["plan_hash"]
    session.data("kb.delete", slug="aside", confirm=hash)
    write(session, 40)
    yield session
    session.close()


def all_records(session: Session) -> list[Record]:
    return list(session.store.log.read(0, session.store.seq))


def expected(
    session: Session, types: list[str] | None, actor: str | None, id: int | None
) -> list[tuple[int, list[str]]]:
    """Filters the whole log here; returns seq and event types of each matching record."""
    matches = []
    for record in all_records(session):
        fitting = [
            event["type"]
            for event in msgspec.json.decode(record.events)
            if (types is None or event["type"] in types)
            and (id is None or id in {event.get("id"), event.get("document_id")})
        ]
        if actor in (None, record.actor) and (fitting or (types is None and id is None)):
            matches.append((record.seq, fitting))
    return matches


FILTERS = {
    "types": st.none() | st.lists(st.sampled_from(feed.TYPES), min_size=1, max_size=3),
    "actor": st.none() | st.sampled_from(["user", "other", "writer", "kbproc", "nobody"]),
    "document_id": st.none() | st.integers(1, 14),
}


@given(limit=st.integers(1, 30), after=st.integers(0, 80), filters=st.fixed_dictionaries(FILTERS))
def test_pages_hold_everything_once(
    eventful: Session, limit: int, after: int, filters: dict[str, Any]
) -> None:
    options = {name: value for name, value in filters.items() if value is not None}
    rows, cursor = [], None
    while True:
        more = {"cursor": cursor} if cursor else {}
        params = {"after_seq": after, "limit": limit, **options, **more}
        result = eventful.ask("events.read", **params)["result"]
        meta = result["meta"]
        assert len(result["data"]) <= limit and meta["count"] == len(result["data"])
        rows += [(r["seq"], [e["type"] for e in r["events"]]) for r in result["data"]]
        cursor = meta.get("next_cursor")
        assert meta["has_more"] == (cursor is not None)
        if cursor is None:
            break
    expected_rows = expected(eventful, filters["types"], filters["actor"], filters["document_id"])
    assert rows == [entry for entry in expected_rows if entry[0] > after]


def test_a_record_with_many_events_among_the_rows(
    eventful: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog returns few rows at a time, and the events of one record fill them all."""
    records = eventful.data("events.read", types=["doc.deleted"], limit=1)
    assert [len(r["events"]) for r in records] == [3]
    usual = feed.candidates
    monkeypatch.setattr(feed, "candidates", lambda *a, rows: usual(*a, rows=2))
    test_pages_hold_everything_once.hypothesis.inner_test(  # type: ignore[attr-defined]
        eventful,
        3,
        0,
        {"types": ["doc.deleted", "doc.changed"], "actor": None, "document_id": None},
    )


def test_what_a_record_shows(eventful: Session) -> None:
    record = eventful.data("events.read", document_id=3, types=["doc.written"])[1]
    (event,) = record.pop("events")
    assert record == {
        "seq": record["seq"],
        "ts": "2026-01-01T00:00:00.000Z",
        "actor": "other",
        "method": "doc.update",
        "token": None,
    }
    assert event == {
        "type": "doc.written",
        "summary": "replace document 3 “Doc 3” (1 chunk)",
        "document_id": 3,
        "kb": "default",
        "revision": 2,
    }
    (full,) = eventful.data("events.read", after_seq=record["seq"] - 1, limit=1, full=True)
    raw = next(eventful.store.log.read(record["seq"] - 1, record["seq"]))
    assert [e.pop("data") for e in full["events"]] == json.loads(bytes(raw.events))
    assert full["events"] == [event]
    (creation,) = eventful.data("events.read", types=["kb.created"], after_seq=1)
    assert (creation["token"], creation["events"][0]["kb"]) == ("a token", "aside")


def test_an_outcome_is_a_record_without_events(eventful: Session) -> None:
    ingest = [r for r in eventful.data("events.read", actor="user") if r["token"] == "ingest"]
    assert [[e["type"] for e in r["events"]] for r in ingest] == [["doc.written"], []]


def test_beyond_the_end_there_is_nothing(eventful: Session) -> None:
    answer = eventful.ask("events.read", after_seq=10_000)["result"]
    assert (answer["data"], answer["meta"]["has_more"]) == ([], False)
    assert answer["meta"]["seq"] == eventful.store.seq


def test_wrong_params_are_named(eventful: Session, subtests: pytest.Subtests) -> None:
    for method in ("events.read", "events.subscribe"):
        with subtests.test(method=method):
            error = eventful.error(method, types=["kb.created", "doc.writen"])
            assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.types[1]")
            assert "doc.written" in error["valid_values"]
            assert eventful.error(method, types=[])["field"] == "$.params.types"
            assert eventful.error(method, after_seq=-1)["field"] == "$.params.after_seq"
            assert eventful.error("events.read", cursor="no")["field"] == "$.params.cursor"


def test_it_is_for_admins(open_session: OpenSession) -> None:
    session = ready(open_session(scopes="doc:read"))
    for method in ("events.read", "events.verify", "events.subscribe"):
        assert session.error(method)["type"] == "auth.insufficient_scope"


# ---------------------------------------------------------------------- long records


def test_no_line_is_too_long(open_session: OpenSession) -> None:
    """Chunks are left out of a long record, then events; pages end early."""
    session = ready(open_session())
    for length in (1_000, 3_000, 3_000, 40_000, 3_000):
        session.data("doc.create", title="T", text="word " * (length // 5), metadata={"n": length})
    many = [FileFailed(kb="many", path=f"/{n}", error="e", message="m") for n in range(80)]
    session.store.commit(lambda lane: lane.append(many, actor="a", method="doc.ingest"))
    last = session.store.seq
    session.close()
    limit = 10_000
    session = ready(open_session(max_line_bytes=limit))
    client = Client(session).subscribe(after_seq=0, full=True)
    items = client.items(last)
    assert seqs(items) == list(range(1, last + 1))
    assert max(len(msgspec.json.encode(item)) for item in items) < limit - 500
    assert [items[n]["events"][0].get("left_out") for n in range(1, 6)] == [
        None,
        None,
        None,
        "chunks",
        None,
    ]
    assert items[4]["events"][0]["data"]["metadata"] == {"n": 40_000}
    assert "chunks" not in items[4]["events"][0]["data"]
    failed = items[-1]
    assert failed["events"][0]["left_out"] == "data" and failed["events"][0]["kb"] == "many"
    assert len(failed["events"]) + failed["more_events"] == 80
    received, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        more = {"cursor": cursor} if cursor else {}
        answer = session.ask("events.read", limit=1000, full=True, **more)
        assert len(msgspec.json.encode(answer)) <= limit
        received += answer["result"]["data"]
        cursor = answer["result"]["meta"].get("next_cursor")
        pages += 1
    assert received == items and pages >= 3


EVENTS = st.lists(
    st.builds(
        feed.ShownEvent,
        type=st.just("doc.written"),
        summary=st.text(max_size=80),
        document_id=st.just(1),
        kb=st.none(),
        revision=st.none(),
        data=st.just(msgspec.UNSET)
        | st.fixed_dictionaries({"title": st.text(max_size=50), "chunks": st.text(max_size=300)}),
    ),
    max_size=20,
)


@given(events=EVENTS, most=st.integers(200, 4000))
def test_a_record_is_made_short_enough(events: list[feed.ShownEvent], most: int) -> None:
    whole = feed.ShownRecord(seq=1, ts="t", actor="a", method="m", events=events, token=None)
    short = whole.shortened(most)
    assert len(msgspec.json.encode(short)) <= most
    left_out = 0 if short.more_events is msgspec.UNSET else short.more_events
    assert len(short.events) + left_out == len(events)
    if len(msgspec.json.encode(whole)) <= most:
        assert short == whole


# ------------------------------------------------------- purged, repaired and damaged


def rewritten(session: Session, change: Any) -> None:
    """Rewrites a closed store's log and deletes its views, so that they are rebuilt."""
    (segment,) = (session.store.folder / "log").iterdir()
    lines = [records.decode(line) for line in segment.read_bytes().splitlines()]
    segment.write_bytes(b"".join(records.encode(r) + b"\n" for r in change(lines)))
    shutil.rmtree(session.store.folder / "views")


def test_what_is_erased_or_lost_is_shown_as_such(open_session: OpenSession) -> None:
    session = ready(open_session())
    for number in range(6):
        session.data("doc.create", title=f"T{number}", text="words")
    session.close()

    def change(lines: list[Record]) -> list[Record]:
        erased = Erased(was="doc.written", purge=9, document_id=1, next_document=2, next_chunk=2)
        lines[1] = records.redacted(lines[1], events=bytes(codec.encode([erased])), result=b"null")
        last = Position(lines[4].seq, lines[4].hash)
        lost = records.placeholder(first=4, last=last, prev=lines[2].hash, ts=lines[4].ts)
        return [*lines[:3], lost, *lines[5:]]

    rewritten(session, change)
    session = ready(open_session())
    rows = session.data("events.read", full=True)
    assert seqs(rows) == [1, 2, 3, 5, 6, 7]
    assert [r.get("lost") for r in rows] == [None, None, None, 4, None, None]
    (event,) = rows[1]["events"]
    assert (event["type"], event["summary"]) == ("text.erased", "doc.written, erased by record 9")
    assert event["document_id"] == 1 and "words" not in json.dumps(event)
    assert rows[3]["events"] == []
    assert seqs(session.data("events.read", types=["text.erased"])) == [2]
    assert seqs(session.data("events.read", actor="kbproc")) == [1]
    for after in range(9):
        assert (
            seqs(session.data("events.read", after_seq=after, limit=1))
            == ([s for s in (1, 2, 3, 5, 6, 7) if s > after][:1])
        )
    report = session.data("events.verify")
    assert (report["records"], report["erased"], report["segments"]) == (5, 1, 1)
    assert report["lost"] == [{"first_seq": 4, "last_seq": 5}]


def test_a_sound_chain(eventful: Session) -> None:
    answer = eventful.ask("events.verify")["result"]
    head = eventful.store.published.head
    moment = "2026-01-01T00:00:00.000Z"
    assert answer["data"] == {
        "records": head.seq,
        "segments": 1,
        "head": {"seq": head.seq, "hash": head.hash},
        "first_ts": moment,
        "last_ts": moment,
        "erased": 0,
        "lost": [],
    }
    assert answer["meta"]["seq"] == head.seq


def damaged(segment: Path, seq: int, how: str) -> None:
    lines = segment.read_bytes().splitlines(keepends=True)
    line = lines[seq - 1]
    lines[seq - 1] = {
        "changed": line.replace(b"Title", b"Tutle"),
        "unreadable": line.replace(b'"', b"#"),
        "gone": b"",
    }[how]
    segment.write_bytes(b"".join(lines))


@pytest.mark.parametrize("how", ["changed", "unreadable", "gone"])
@pytest.mark.parametrize("seq", [4, 6])
def test_damage_is_told_with_what_it_affects(open_session: OpenSession, how: str, seq: int) -> None:
    session = ready(open_session())
    for number in range(1, 6):
        session.data("doc.create", title=f"Title {number}", text="words")
    (segment,) = (session.store.folder / "log").iterdir()
    whole = segment.read_bytes()
    damaged(segment, seq, how)
    error = session.error("events.verify")
    assert error["type"] == "store.corrupt" and "kbproc doctor --repair" in error["hint"]
    detail = error["detail"]
    assert {"id": seq - 1, "title": f"Title {seq - 1}"} in detail["documents"]
    assert len(detail["documents"]) <= 2
    if how == "gone" and seq == 6:  # no line of a log that ends early is damaged
        assert (detail["seq"], detail["last_seq"]) == (6, 5)
    else:
        assert (detail["segment"], detail["line"]) == (segment.name, seq)
        assert detail["seq"] == seq + (how == "gone")
    assert session.error("events.read")["type"] == "store.corrupt"
    client = Client(session).subscribe(after_seq=0)
    assert client.ended()["type"] == "store.corrupt"
    segment.write_bytes(whole)
    assert session.data("events.verify")["records"] == session.store.seq


# ------------------------------------------------------------------------- the tail


def test_from_the_start_the_middle_and_now(open_session: OpenSession) -> None:
    session = ready(open_session())
    last = write(session, 10)
    start = Client(session).subscribe(after_seq=0)
    middle = Client(session).subscribe(after_seq=5)
    now = Client(session).subscribe()
    assert seqs(start.items(last)) == list(range(1, last + 1))
    assert seqs(middle.items(last - 5)) == list(range(6, last + 1))
    assert write(session, 3) == last + 3
    for client, index in ((start, last + 1), (middle, last - 4), (now, 1)):
        assert seqs(client.items(3, index)) == [last + 1, last + 2, last + 3]
        client.cancel()
        assert client.ended()["detail"] == {"seq": last + 3}


def test_items_are_what_read_shows(eventful: Session) -> None:
    for more in ({}, {"full": True}, {"types": ["doc.written"]}, {"document_id": 1}):
        records = eventful.data("events.read", limit=1000, **more)
        client = Client(eventful).subscribe(after_seq=0, **more)
        assert client.items(len(records)) == records
        client.cancel()
        assert client.ended()["detail"] == {"seq": eventful.store.seq}


def test_from_the_future(session: Session) -> None:
    client = Client(session).subscribe(after_seq=4)
    warning = client.params()
    assert (warning["type"], warning["index"]) == ("warning", 1)
    ready(session)
    assert write(session, 6) == 7
    assert seqs(client.items(3, 2)) == [5, 6, 7]


def test_filters_on_what_comes(open_session: OpenSession) -> None:
    session = ready(open_session())
    by_writer = Client(session).subscribe(actor="writer")
    creations = Client(session).subscribe(types=["kb.created", "doc.written"])
    one = Client(session).subscribe(document_id=2)
    session.data("kb.create", slug="new-one")
    for title in ("A", "B"):
        session.data("doc.create", title=title, text="words")
    session.data("doc.update", id=2, title="C")
    last = write(session, 3)
    assert seqs(by_writer.items(3)) == [last - 2, last - 1, last]
    assert seqs(creations.items(3)) == [2, 3, 4]
    assert seqs(one.items(2)) == [4, 5]
    latest = Client(session).subscribe(after_seq=last)
    write(session, 1)
    latest.items(1)  # this subscription was made last, so that the others have been served before
    one.cancel()
    assert one.ended()["detail"]["seq"] >= last, "up to there nothing else concerned it"


def test_live_while_many_write(open_session: OpenSession) -> None:
    """Twenty clients that subscribe at different times all receive every record once."""
    session = ready(open_session())

    def work() -> None:
        for _ in range(12):
            write(session, 5)

    writers = [threading.Thread(target=work) for _ in range(3)]
    for writer in writers:
        writer.start()
    clients = [Client(session).subscribe(after_seq=number) for number in range(20)]
    for writer in writers:
        writer.join()
    last = session.store.seq
    assert last == 1 + 3 * 12 * 5
    for number, client in enumerate(clients):
        first = 1
        if json.loads(client.outbox.lines[0])["params"]["type"] == "warning":
            client.params()
            first = 2
        assert seqs(client.items(last - number, first)) == list(range(number + 1, last + 1))
        client.cancel()
        assert client.ended()["detail"] == {"seq": last}


def test_backlogs_take_turns(open_session: OpenSession) -> None:
    """A long backlog delays neither another subscription nor a waiting request."""
    session = ready(open_session())
    last = write(session, 400)
    client = Client(session)
    client.outbox.congested = True  # until both subscriptions wait
    for id in ("a", "b"):
        client.send(id, "events.subscribe", after_seq=0)
    until(lambda: client.connection.waiting == 2, "both to wait")
    client.outbox.congested = False
    client.outbox.on_room()
    order: list[str] = []
    while len(order) < 2 * last:
        if (event := client.params())["type"] == "item":
            order.append(event["request_id"])
    for id, other in (("a", "b"), ("b", "a")):
        started = order.index(id)
        ended = len(order) - order[::-1].index(id)
        assert other in order[started:ended], "one was sent as a whole before the other"


def test_it_goes_on_after_a_restart(open_session: OpenSession) -> None:
    session = ready(open_session())
    last = write(session, 250)
    client = Client(session).subscribe(after_seq=0)
    received = seqs(client.items(120))
    client.connection.end(PATIENCE)
    session.close()
    session = ready(open_session())
    client = Client(session).subscribe(after_seq=received[-1])
    write(session, 5)
    received += seqs(client.items(last + 5 - 120))
    assert received == list(range(1, last + 6))


def test_killed_while_subscribed(tmp_path: Path) -> None:
    """A client that goes on after the last received seq misses no record and gets none twice."""
    received: list[int] = []
    for round in range(3):
        process = Process(tmp_path / "store", cwd=tmp_path).ready()
        after = received[-1] if received else 0
        process.send(as_bytes(request("s", "events.subscribe", after_seq=after)))
        for number in range(30):
            slug = f"kb-{round}-{number}"
            process.send(as_bytes(request(number, "kb.create", slug=slug)))
        target = len(received) + 8 + round
        while len(received) < target:
            message = process.message()
            if message.get("params", {}).get("type") == "item":
                received.append(message["params"]["item"]["seq"])
        process.stop(signal.SIGKILL)
    process = Process(tmp_path / "store", cwd=tmp_path).ready()
    last = process.ask("p", "ping")["result"]["data"]["seq"]
    process.send(as_bytes(request("s", "events.subscribe", after_seq=received[-1])))
    while received[-1] < last:
        if (message := process.message()).get("params", {}).get("type") == "item":
            received.append(message["params"]["item"]["seq"])
    assert received == list(range(1, last + 1))
    process.close()
    process.stop()


def test_the_clients_end_ends_it_at_once(tmp_path: Path) -> None:
    process = Process(tmp_path / "store", cwd=tmp_path).ready()
    process.send(as_bytes(request("s", "events.subscribe", after_seq=0)))
    assert [process.message()["params"]["type"] for _ in range(2)] == ["init", "item"]
    (last,) = process.close()
    error = json.loads(last)["error"]["data"]
    assert (error["type"], error["detail"]) == ("operation.cancelled", {"seq": 1})
    assert process.stop() == 0


def test_it_takes_no_place(open_session: OpenSession) -> None:
    session = ready(open_session(max_in_flight=1))
    client = Client(session)
    threads = threading.active_count()
    for id in range(30):
        client.send(id, "events.subscribe", after_seq=0)
        until(lambda: client.connection.waiting > id, "it to wait")  # noqa: B023  now
    while "result" not in client.message():
        client.send("ping", "ping")
    assert threading.active_count() < threads + 15, "far from one each"
    client.connection.end(PATIENCE)


def test_its_time_ends(session: Session) -> None:
    clock = [0.0]
    session.service.host.monotonic_ms = lambda: clock[0]  # type: ignore[method-assign]
    client = Client(session).subscribe(after_seq=0, timeout_ms=1000)
    client.items(1)
    ready(session)
    clock[0] = 999.0
    write(session, 1)
    client.items(1, 2)
    clock[0] = 1000.0
    session.service.parking.wake()
    error = client.ended()
    assert (error["type"], error["seq"], error["detail"]) == ("operation.timeout", 2, {"seq": 2})


def test_min_seq_is_waited_for_first(session: Session) -> None:
    client = Client(session).subscribe(after_seq=0, min_seq=3)
    ready(session)
    write(session, 1)
    assert client.outbox.lines == []
    write(session, 2)
    assert seqs(client.items(4)) == [1, 2, 3, 4]


# ---------------------------------------------------------------- who does not read


@pytest.fixture
def pipe() -> Iterator[tuple[int, Outbox]]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # full after few lines
    outbox = Outbox(writer)
    yield reader, outbox
    os.close(reader)
    outbox.close()
    os.close(writer)


def lines_of(reader: int) -> Iterator[bytes]:
    rest = b""
    while select.select([reader], [], [], PATIENCE)[0]:
        *lines, rest = (rest + os.read(reader, 1 << 16)).split(b"\n")
        yield from lines


@pytest.mark.parametrize("size", [0, 30_000])
def test_a_slow_reader_holds_nobody_back(
    open_session: OpenSession,
    pipe: tuple[int, Outbox],
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pending events of a slow reader stay in the log, not in memory, and none is lost."""
    if size == 0:
        monkeypatch.setattr("kbproc.surfaces.wire.outbox._CONGESTED", 40)
    session = ready(open_session())
    reader, outbox = pipe
    slow_client = Client(session, outbox)
    slow_client.send("s", "events.subscribe", after_seq=0, full=True)
    fast_client = Client(session).subscribe(after_seq=0)
    last, most = 1, 0
    while last < (150 if size == 0 else 300):
        last = write(session, 100, size=size)
        most = max(most, outbox.held[1])
    assert seqs(fast_client.items(last)) == list(range(1, last + 1))
    until(lambda: outbox.congested, "an outbox that is congested")
    assert most < 6 << 20 and outbox.held[0] <= (41 if size == 0 else 257)
    assert "result" in session.ask("ping")
    received: list[int] = []
    lines = lines_of(reader)
    while len(received) < last:
        event = json.loads(next(lines))["params"]
        if event["type"] == "item":
            received.append(event["item"]["seq"])
            assert event["index"] == len(received)
    assert received == list(range(1, last + 1))
    slow_client.connection.end(PATIENCE)
    assert json.loads(next(lines))["error"]["data"]["detail"] == {"seq": last}


def test_who_does_not_read_can_cancel(open_session: OpenSession, pipe: tuple[int, Outbox]) -> None:
    session = ready(open_session())
    write(session, 200, size=30_000)
    _, outbox = pipe
    slow_client = Client(session, outbox)
    for id in range(3):
        slow_client.send(id, "events.subscribe", after_seq=0, full=True)
    until(
        lambda: outbox.congested and slow_client.connection.in_flight == 3,
        "an outbox that is congested",
    )
    slow_client.cancel(1)
    until(lambda: slow_client.connection.in_flight == 2, "the end of one")
    slow_client.connection.end(0.2)
    assert slow_client.connection.wait_until_idle(PATIENCE)


# ---------------------------------------------------------------------- in a shell


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def test_a_shell_follows_until_its_time_is_over(run: Run) -> None:
    for number in range(3):
        assert run("kb", "create", f"kb-{number}")[0] == 0
    for seconds in ("0.1", "1", "10", "60"):  # long enough for this machine to open the store
        code, out, err = run(
            "events", "subscribe", "--after-seq", "1", "--timeout", seconds, "--format", "ndjson"
        )
        events = [json.loads(line) for line in out.splitlines()]
        if len(events) > 1:
            break
    assert [e["type"] for e in events] == ["init", "item", "item", "item"]
    assert seqs([e["item"] for e in events[1:]]) == [2, 3, 4]
    error = json.loads(err)["error"]
    assert (code, error["type"], error["detail"]) == (4, "operation.timeout", {"seq": 4})
    code, out, _ = run("events", "read", "--types", "kb.created", "--format", "text")
    assert code == 0 and "create knowledge base kb-1" in out
    assert run("events", "verify", "--jq", ".data.records")[:2] == (0, "4\n")


def test_a_shell_follows_until_ctrl_c(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kbproc",
            "events",
            "subscribe",
            "--after-seq",
            "0",
            "--format",
            "ndjson",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **environment(tmp_path)},
    )
    assert process.stdout and process.stderr
    while ITEM not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert json.loads(process.stderr.read())["error"]["type"] == "operation.cancelled"
    process.stdout.close()
    process.stderr.close()
