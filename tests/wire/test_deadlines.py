"""`timeout_ms` always holds, and never leaves a half-done change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.host import Host
from kbproc.base.settings.config import Config
from kbproc.methods.all import registry
from kbproc.surfaces.sharing.command import Command
from kbproc.surfaces.wire.in_flight import Deadlines, InFlight
from tests.conftest import OpenSession
from tests.kit import toys
from tests.kit.fixed import FixedHost
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session, as_bytes, cancel, parsed, request

LONG = 86_400_000  # milliseconds; longer than any test


class AdvancedClock:
    """The machine's clock, which a test can put forward."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def put_forward(self, ms: int) -> None:
        self._ahead_ms += ms

    def monotonic_ms(self) -> float:
        return Host().monotonic_ms() + self._ahead_ms


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> AdvancedClock:
    clock = AdvancedClock()
    monkeypatch.setattr(FixedHost, "monotonic_ms", clock.monotonic_ms)
    return clock


@pytest.fixture
def released() -> Iterator[threading.Event]:
    toys.RELEASED.clear()
    yield toys.RELEASED
    toys.RELEASED.set()


class HeldPoint:
    """A failpoint at which threads wait until the test lets them go."""

    def __init__(self, point: str) -> None:
        self.reached, self._go_on = threading.Event(), threading.Event()
        self._point = point
        failpoints.arm(self._hold)

    def _hold(self, point: str) -> None:
        if point == self._point:
            self.reached.set()
            assert self._go_on.wait(PATIENCE)

    def let_go(self) -> None:
        self._go_on.set()


def answer(session: Session, id: int) -> Any:
    while (message := parsed(session.receive())).get("id") != id:
        pass
    return message


def late(session: Session, id: int) -> Any:
    message = answer(session, id)
    assert message["error"]["data"]["type"] == "operation.timeout", message
    return message["error"]["data"]


def titles(session: Session) -> list[str]:
    return [document["title"] for document in session.data("doc.list")]


def test_a_read_that_takes_too_long(open_session: OpenSession, released: threading.Event) -> None:
    """The timeout comes in time; the late result is dropped, and its place is free."""
    session = open_session(registry=toys.registry(), max_in_flight=1)
    for id in (1, 2):
        session.send(as_bytes(request(id, "hold", timeout_ms=20)))
        assert late(session, id)["message"] == "hold was not done in 20 ms."
    released.set()
    assert session.data("get_data") == ["hello", 5]
    assert [line for line in session.close() if b'"id":1' in line or b'"id":2' in line] == []


class Asked:
    """A request that notes that its time is up."""

    def __init__(self) -> None:
        self.expired = threading.Event()

    def expire(self) -> None:
        self.expired.set()


def test_what_was_answered_in_time_is_not_told(clock: AdvancedClock) -> None:
    deadlines = Deadlines(FixedHost())
    answered, late, early = Asked(), Asked(), Asked()
    deadlines.add(answered, LONG)
    deadlines.add(late, LONG)
    deadlines.remove(answered)
    clock.put_forward(LONG)
    deadlines.add(early, LONG)  # wakes the thread that watches the clock
    assert late.expired.wait(PATIENCE)
    assert not answered.expired.is_set() and not early.expired.is_set()
    deadlines.close()


def pass_the_time_of_all(session: Session, clock: AdvancedClock) -> None:
    """Lets all earlier requests expire, and waits until they are marked as expired."""
    clock.put_forward(2 * LONG)
    session.send(as_bytes(request(99, "doc.create", title="late", text="x", timeout_ms=20)))
    late(session, 99)  # earlier requests expire first


def test_a_read_behind_others(open_session: OpenSession, released: threading.Event) -> None:
    """The time counts from the request's arrival, not from its turn."""
    session = open_session(registry=toys.registry())
    for id in range(10, 18):
        session.send(as_bytes(request(id, "hold")))
    session.send(as_bytes(request(1, "get_data", timeout_ms=20)))
    late(session, 1)
    released.set()
    session.idle()
    assert sorted(parsed(line)["id"] for line in session.close()) == list(range(10, 18))


def test_a_write_that_waits_for_its_turn_is_not_done_later(open_session: OpenSession) -> None:
    session = open_session()
    with session.store.lane():
        session.send(as_bytes(request(1, "doc.create", title="late", text="x", timeout_ms=20)))
        late(session, 1)
    session.idle()
    session.data("doc.create", title="in time", text="x")
    assert titles(session) == ["in time"]


def test_a_write_in_its_turn_is_done(open_session: OpenSession, clock: AdvancedClock) -> None:
    """A write that is already being committed is answered with its result, not with a timeout."""
    session = open_session()
    hold = HeldPoint("log.sync")
    session.send(as_bytes(request(1, "doc.create", title="just", text="x", timeout_ms=LONG)))
    assert hold.reached.wait(PATIENCE)
    pass_the_time_of_all(session, clock)
    hold.let_go()
    assert answer(session, 1)["result"]["data"]["title"] == "just"
    assert titles(session) == ["just"]


def test_a_long_write_ends_at_its_next_step(
    open_session: OpenSession, tmp_path: Path, clock: AdvancedClock
) -> None:
    """Committed documents stay, and the error counts them."""
    for n in range(3):
        (tmp_path / f"{n}.md").write_text(f"# Document {n}\n\nwords\n")
    session = open_session()
    hold = HeldPoint("blob.write")
    session.send(as_bytes(request(1, "doc.ingest", paths=["."], glob="*.md", timeout_ms=LONG)))
    assert hold.reached.wait(PATIENCE)
    with session.store.lane():
        pass_the_time_of_all(session, clock)
    hold.let_go()
    error = late(session, 1)
    assert error["detail"]["added"] == len(titles(session))


def test_a_wait_counts_from_its_arrival(open_session: OpenSession, clock: AdvancedClock) -> None:
    session = open_session()
    session.send(as_bytes(request(1, "ping", min_seq=99, timeout_ms=LONG)))
    until(lambda: session.connection.waiting == 1, "a request that waits")
    clock.put_forward(LONG)
    session.send(as_bytes(request(2, "ping", min_seq=99)))  # wakes the thread that polls
    assert "Position 99" in late(session, 1)["message"]
    session.send(as_bytes(cancel(2)))


# ------------------------------------------------------------ a command in its own process


TOO_LONG = [LONG + 1, 10**13, 2**63 - 1, 2**63, 10**40]


def test_a_time_that_nobody_can_wait_stops_no_other(session: Session) -> None:
    for timeout_ms in TOO_LONG:
        refused = session.error("ping", timeout_ms=timeout_ms)
        assert (refused["type"], refused["field"]) == (
            "input.invalid_params",
            "$.params.timeout_ms",
        ), timeout_ms
        waited = session.error("ping", min_seq=10**6, timeout_ms=20)
        assert waited["type"] == "operation.timeout"


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    backends: list[Command] = []

    def make(methods: Any) -> Command:
        settings = Config(store=tmp_path / "store", cache=tmp_path / "cache")
        backends.append(Command(config=settings, registry=methods, host=Host()))
        return backends[-1]

    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "store.toml").write_text(
        'format = 2\n[model]\nkind = "hash"\nname = "x"\n'
    )
    yield make
    for backend in backends:
        backend.close()


def test_a_command_gives_up_a_read(
    command: Callable[..., Command], released: threading.Event
) -> None:
    backend = command(toys.registry())
    answered = backend.ask("hold", {"timeout_ms": 20}, lambda event: None)
    assert answered["error"]["data"]["type"] == "operation.timeout"


def test_a_command_refuses_a_time_that_nobody_can_wait(command: Callable[..., Command]) -> None:
    backend = command(registry())
    for timeout_ms in TOO_LONG:
        answered = backend.ask("ping", {"timeout_ms": timeout_ms}, lambda event: None)
        assert answered["error"]["data"]["field"] == "$.params.timeout_ms", timeout_ms


def test_a_command_gives_up_a_store_that_opens_slowly(command: Callable[..., Command]) -> None:
    hold = HeldPoint("log.synced")
    backend = command(registry())
    answered = backend.ask("ping", {"timeout_ms": 20}, lambda event: None)
    assert answered["error"]["data"]["type"] == "operation.timeout"
    hold.let_go()


def test_a_command_ends_a_long_write_at_its_next_step(
    command: Callable[..., Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for n in range(3):
        (docs / f"{n}.md").write_text(f"# Document {n}\n\nwords\n")
    backend = command(registry())
    backend.ask("ping", {}, lambda event: None)
    hold, expired, expire = HeldPoint("blob.write"), threading.Event(), InFlight.expire

    def expire_noted(request: InFlight) -> None:
        expire(request)
        expired.set()

    monkeypatch.setattr(InFlight, "expire", expire_noted)
    now_ms = [0.0]  # the clock stands still until the write has begun
    monkeypatch.setattr(Host, "monotonic_ms", lambda host: now_ms[0])
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(
            backend.ask("doc.ingest", {"paths": [str(docs)], "timeout_ms": 20}, lambda event: None)
        )
    )
    asking.start()
    assert hold.reached.wait(PATIENCE)
    now_ms[0] = 20.0
    assert expired.wait(PATIENCE)
    hold.let_go()
    asking.join(PATIENCE)
    error = answers[0]["error"]["data"]
    assert error["type"] == "operation.timeout"
    assert error["detail"]["added"] >= 1
