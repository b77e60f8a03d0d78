"""Streams that differ from what the nodes have seen: every node reports it, and one refills them.

Servers lose synced data when their disks are put back, cut off or flipped. With one copy of the
stream only a node can mend that; with three the other two copies do, or the nodes report it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream import link
from kbproc.engine.cluster.jetstream import log as shared_log
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.refill import compare
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import LogStream
from kbproc.engine.cluster.work.erasing import erase
from kbproc.engine.cluster.work.messages import KEY_BYTES, NodeNames, make_streams, parcels
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.record import START
from tests.kit.faults import faults_of, note
from tests.kit.nats import Server, hear_soon
from tests.kit.patience import LONG, PATIENCE, all_or, until
from tests.kit.records import write
from tests.kit.team import (
    Case,
    impatient,
    lines,
    restarted,
    until_same,
    until_told,
    without_numbers,
    write_some,
)

compared = faults_of("streams", thinned=True)

COUNT = 24
REMEDIES = {
    "append": "Reseeding publishes what is missing.",
    "replace": "Reseeding makes the stream anew.",
}
KEY = bytes(KEY_BYTES)  # key of an arbitrary model


@pytest.fixture(autouse=True)
def _doubts_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    hear_soon(monkeypatch)
    monkeypatch.setattr(link, "DOUBT_S", 0.2)
    monkeypatch.setattr(shared_log, "PATIENCE_S", PATIENCE)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    running = Case(tmp_path)
    yield running
    running.close()


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.setattr(link, "DOUBT_S", 5.0)  # a server that leads may be catching up
    running = Case(tmp_path, 3)
    yield running
    running.close()


# ------------------------------------------------------------------ what disks do


def block(server: Server) -> Path:
    """The last file of the stream's messages."""
    return max((server.folder / "data").glob("**/KB_team/msgs/*.blk"))


def flip(server: Server) -> None:
    data = bytearray(block(server).read_bytes())
    data[len(data) // 2] ^= 1
    block(server).write_bytes(data)


def cut(server: Server) -> None:
    data = block(server).read_bytes()
    block(server).write_bytes(data[: len(data) // 2])


def lose_tail(server: Server) -> None:
    """Cuts off data that had not reached the disk: the file ends in the middle of a message."""
    data = block(server).read_bytes()
    block(server).write_bytes(data[:-20])


def wipe(server: Server) -> None:
    shutil.rmtree(server.folder / "data")


def keep(server: Server) -> None:
    shutil.copytree(server.folder / "data", server.folder / "kept")


def put_back(server: Server) -> None:
    wipe(server)
    (server.folder / "kept").rename(server.folder / "data")


class Fault(NamedTuple):
    act: Callable[[Case], None]
    message: str
    remedy: str = "append"


def delete(case: Case) -> None:
    ask(case.settings, LogStream.delete)


def make_anew(case: Case) -> None:
    delete(case)
    ask(case.settings, partial(LogStream.create, replicas=1))


def fork(case: Case) -> None:
    """Another node writes on from a stream that was put back."""
    other = case.join("other")
    write_some(other, 500, 3)
    case.leave(other)


FAULTS = {
    "put back": Fault(lambda case: restarted(case, put_back), "The stream ends at record 12,"),
    "flipped bit": Fault(lambda case: restarted(case, flip), "The stream ends at record "),
    "cut off": Fault(lambda case: restarted(case, cut), "The stream ends at record "),
    "unsynced tail lost": Fault(
        lambda case: restarted(case, lose_tail), f"ends at record {COUNT - 1},"
    ),
    "wiped": Fault(lambda case: restarted(case, wipe), "There is no stream", "replace"),
    "deleted": Fault(delete, "There is no stream", "replace"),
    "made anew": Fault(make_anew, "The stream ends at record 0,"),
    "a message erased": Fault(
        lambda case: ask(case.settings, partial(LogStream.erase, seq=COUNT)),
        f"does not hold record {COUNT}",
        "replace",
    ),
}


@pytest.mark.parametrize("name", all_or(["put back", "flipped bit", "made anew"], FAULTS))
def test_a_fault_is_told_and_mended_from_a_node(case: Case, name: str) -> None:
    """The other node, which has the same records, recovers by itself."""
    fault = FAULTS[name]
    one, two = case.join("one"), case.join("two")
    write(one, COUNT // 2)
    restarted(case, keep)
    until(lambda: one.trouble is None, "the connection")
    write(one, COUNT - COUNT // 2)
    until_same(one, two)
    fault.act(case)
    if name == "a message erased":
        restarted(case, lambda server: None)
    until_told(one, fault.message)
    until_told(two, fault.message)
    assert one.damage == two.damage
    message = without_numbers(one.damage or "")
    assert len(lines(one)) == COUNT, "it reads on"
    assert case.reseed(one) == fault.remedy
    note("streams", name, f"{message} {REMEDIES[fault.remedy]}")
    until_same(one, two)
    write_some(two, COUNT + 1, 2)
    until_same(one, two, case.join("three"))
    assert one.verify() == COUNT + 2


def test_a_node_that_holds_what_a_refilled_stream_lacks_is_told(case: Case) -> None:
    one, two = case.join("one"), case.join("two")
    write(one, 6)
    until_same(one, two)
    case.leave(two)
    restarted(case, keep)
    until(lambda: one.trouble is None, "the connection")
    write(one, 2)
    restarted(case, put_back)
    two = case.join("two")
    write_some(two, 500, 3)
    until_told(one, "does not hold record 7 as this node does, which holds 2 records after 6")
    message = without_numbers(one.damage or "")
    note("streams", "put back, and others went on", f"{message} {REMEDIES['replace']}")
    diff = compare(case.settings, one)
    assert (diff.remedy, diff.equal.seq, diff.sound.seq) == ("replace", 6, 9)
    assert compare(case.settings, two).remedy == "nothing"
    assert case.reseed(one) == "replace"
    until_told(two, "does not hold record 7 as this node does, which holds 3 records after 6")
    until_same(one)
    write_some(one, 600, 4)
    assert len(lines(two)) == 9, "nothing of it is gone"


def test_a_node_that_is_behind_refills_nothing(case: Case) -> None:
    one, two = case.join("one"), case.join("two")
    write(one, 3)
    until_same(one, two)
    case.leave(two)
    write(one, 3)
    behind = FileLog.open(case.folder / "two" / "log")
    assert compare(case.settings, behind).remedy == "follow"
    behind.close()


def test_a_refill_that_is_cut_off_is_closed_to_writers_and_goes_on(case: Case) -> None:
    one, two = case.join("one"), case.join("two")
    write(one, COUNT)
    until_same(one, two)
    case.leave(two)
    delete(case)
    diff = compare(case.settings, one)
    assert (diff.stream, diff.equal) == (None, START)
    ask(case.settings, partial(LogStream.create, replicas=1, is_open=False))
    fresh = case.join("fresh")
    with impatient(), pytest.raises(KbprocError) as refused:
        write(fresh, 1)
    assert (refused.value.type, refused.value.retryable) == ("store.io", True)
    assert case.reseed(one) == "append"
    until_same(one, fresh, case.join("two"))


# ------------------------------------------------------------------ three copies


THREE = "takes long: three servers agree anew on who leads; make test has the same of one"
MENDED = {"wiped": wipe, "flipped bit": flip, "cut off": cut, "tail": lose_tail, "put back": None}


def has_all(server: Server) -> bool:
    """True once the server has caught up with the leader."""
    return bool(server.ask("/healthz").get("status") == "ok")


@pytest.mark.skipif(not LONG, reason=THREE)
@pytest.mark.parametrize("name", MENDED)
def test_what_one_of_three_servers_has_lost_the_others_mend(three: Case, name: str) -> None:
    """The stream recovers whichever server leads afterwards."""
    one, two = three.join("one"), three.join("two")
    write(one, COUNT)
    if name == "put back":
        restarted(three, keep, slice(1))
        until(lambda: one.trouble is None, "the connection")
        write(one, 3)
    until_same(one, two)
    restarted(three, MENDED[name] or put_back, slice(1))
    until(partial(has_all, three.servers[0]), "what it had lost")
    for server in three.servers[1:]:  # the mended server may have to lead
        server.kill()
        until(three.servers[0].is_well, "the other two")
        write_some(one, 100, 2)
        server.start().ready()
    until_same(one, two, three.join("three"))
    assert compare(three.settings, one).remedy == "nothing"


@pytest.mark.skipif(not LONG, reason=THREE)
def test_all_of_three_servers_put_back(three: Case) -> None:
    one, two = three.join("one"), three.join("two")
    write(one, COUNT)
    until_same(one, two)
    restarted(three, keep)
    until(lambda: one.trouble is None, "the connection")
    write(one, 5)
    until_same(one, two)
    restarted(three, put_back)
    until_told(one, f"ends at record {COUNT}, and this node holds {COUNT + 5}")
    message = without_numbers(one.damage or "")
    assert three.reseed(two) == "append"
    note("streams", "three of three put back", f"{message} {REMEDIES['append']}")
    until_same(one, two, three.join("three"))


# ------------------------------------------------------------------ snapshots of servers


def damage_snapshots(server: Server) -> None:
    """Flips one bit of each snapshot that the streams' replicas wrote; other snapshots stay."""
    paths = sorted((server.folder / "data").glob("**/_js_/S-*/snapshots/snap.*"))
    assert paths
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def refuses_its_replica(server: Server) -> bool:
    return "snapshot corrupt" in server.told() or "group node missing" in server.told()


class DeliveringServer:
    """Chooses the server that delivers a stream: where `by` is set, the next reader gets it from
    that server, and `by` is reset.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.by: str | None = None
        self._leader = ""
        self._ask, self._consume = LogStream._ask, LogStream._consume
        chooser = self

        async def ask(stream: LogStream, what: str, *args: Any) -> dict[str, Any]:
            state = await chooser._ask(stream, what, *args)
            if what == "CONSUMER.CREATE":
                chooser._leader = state["cluster"]["leader"]
            return state

        async def consume(stream: LogStream, inbox: str, first_seq: int) -> None:
            await chooser._drawn(stream, inbox, first_seq)

        patch.setattr(LogStream, "_ask", ask)
        patch.setattr(LogStream, "_consume", consume)

    async def _drawn(self, stream: LogStream, inbox: str, first_seq: int) -> None:
        """Subscribes until the servers, which choose one at random, have chosen the right one."""
        server, self.by, self._leader = self.by, None, ""
        if server is None:
            await self._consume(stream, inbox, first_seq)
            return
        while self._leader != server:
            drawn = stream.connection.new_inbox()  # an inbox without a subscriber yet
            await self._consume(stream, drawn, first_seq)
        heard = next(s for s in stream.connection._subs.values() if s.subject == inbox)._cb
        await stream.connection.subscribe(drawn, cb=heard)


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> DeliveringServer:
    return DeliveringServer(monkeypatch)


def share_vectors(settings: StreamSettings, keys: list[bytes]) -> None:
    """Publishes each vector as a message."""

    async def share(stream: LogStream) -> None:
        context = stream.connection.jetstream()
        await make_streams(context, settings)
        for parcel in (parcel for key in keys for parcel in parcels(KEY, {key: b"ab"})):
            await context.publish(NodeNames(settings.stream, KEY).vectors, parcel)

    ask(settings, share)


def erased(settings: StreamSettings, keys: list[bytes]) -> int:
    """Number of erased messages, once a server has delivered them all."""
    counts = list[int]()

    def is_done() -> bool:
        try:
            counts.append(erase(settings, keys))
        except KbprocError as error:
            assert error.type == "store.io", error
        return bool(counts)

    until(is_done, "whoever has all vectors")
    return counts[0]


def test_a_server_with_a_damaged_snapshot_takes_no_part(
    three: Case, choice: DeliveringServer
) -> None:
    """The server reports it and never leads; the stream is whole whichever server delivers it."""
    one, two = three.join("one"), three.join("two")
    keys = [bytes([n]) * KEY_BYTES for n in range(4)]
    write(one, COUNT)
    share_vectors(three.settings, keys[:2])
    server = three.servers[0]
    server.stop()
    write_some(one, 100, 3)
    damage_snapshots(server)
    server.start()
    until(partial(refuses_its_replica, server), "a refusal", server.told)
    write_some(one, 200, 3)
    choice.by = server.name
    until_same(one, two, three.join("three"))
    for choice.by in [None, server.name]:
        diff = compare(three.settings, one)
        assert (diff.remedy, diff.equal, diff.sound) == ("nothing", one.head, one.head)
        assert choice.by is None
    source = b"x" * 300_000
    ask(three.settings, lambda stream: stream.shelf.put("source", source))
    for _ in range(8):  # because the servers choose who answers
        assert ask(three.settings, lambda stream: stream.shelf.get("source")) == source
    share_vectors(three.settings, keys[2:])
    assert erased(three.settings, keys) == len(keys)


@pytest.mark.skipif(not LONG, reason="who is asked in vain waits some seconds each time")
def test_with_all_snapshots_damaged_nothing_is_written_and_nothing_lost(three: Case) -> None:
    """Nodes can still read; once the snapshots are put back, writing goes on."""
    one, two = three.join("one"), three.join("two")
    write(one, COUNT)
    until_same(one, two)
    before = lines(one)
    for server in three.servers:
        server.stop()
    for server in three.servers:
        keep(server)
        damage_snapshots(server)
        server.start()
    for server in three.servers:
        until(partial(refuses_its_replica, server), "a refusal", server.told)
    with impatient(), pytest.raises(KbprocError) as refused:
        write(one, 1)
    assert (refused.value.type, refused.value.retryable) == ("store.io", True)
    assert lines(one) == before and one.damage is None
    restarted(three, put_back)
    write_some(one, 100, 3)
    until_same(one, two)
    assert lines(one)[: len(before)] == before
