"""A log that several nodes share: lost messages, and streams that have changed."""

from __future__ import annotations

import contextlib
import gc
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.interface import clustered
from kbproc.engine.cluster.jetstream import link, stream
from kbproc.engine.cluster.jetstream import log as shared_log
from kbproc.engine.cluster.jetstream.link import StreamLink
from kbproc.engine.cluster.jetstream.log import JetStreamLog
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.refill import compare
from kbproc.engine.cluster.jetstream.settings import StreamSettings, read
from kbproc.engine.cluster.jetstream.stream import (
    MOST_IN_A_BATCH,
    LogStream,
    StreamMessage,
    StreamState,
)
from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileLog
from kbproc.engine.log.interface import Behind
from kbproc.engine.log.record import START
from kbproc.knowledge.cluster.choice import open_log
from tests.kit import nats
from tests.kit.deaf import Proxy
from tests.kit.patience import PATIENCE, until
from tests.kit.records import commit, draft, write
from tests.kit.talk import REPO

Join = Callable[[str, StreamSettings], JetStreamLog]


@pytest.fixture(autouse=True)
def _hears_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    nats.hear_soon(monkeypatch)


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Join]:
    """Opens the log of the node of that name."""
    opened: list[JetStreamLog] = []

    def join(name: str, settings: StreamSettings) -> JetStreamLog:
        opened.append(JetStreamLog.open(tmp_path / name))
        opened[-1].join(settings)
        return opened[-1]

    yield join
    for log in opened:
        log.close()


def until_seq(log: JetStreamLog, seq: int) -> None:
    until(lambda: (log.gather(), log.head.seq)[1] >= seq, f"record {seq}")


def commit_first(log: JetStreamLog, number: int) -> None:
    """Commits as the store does: after a collision it reads the other records and retries."""
    while True:
        log.gather()
        with contextlib.suppress(Behind):
            commit(log, [draft(number), draft(number + 1)])
            return


def same(*logs: JetStreamLog) -> bool:
    return len({b"".join(map(records.encode, log.read())) for log in logs}) == 1


# ------------------------------------------------------------------------ several nodes


def test_what_one_node_writes_the_others_take_in(join: Join) -> None:
    settings = nats.shared().stream()
    one, two = join("one", settings), join("two", settings)
    news = threading.Event()
    two.on_news(news.set)
    write(one, 3)
    assert news.wait(PATIENCE)
    until_seq(two, 3)
    assert two.head == one.head and two.last_ts == one.last_ts
    commit(one, [draft(number) for number in range(MOST_IN_A_BATCH)])
    three = join("three", settings)
    assert three.head == one.head, "a node that joins has taken in what is there"
    until_seq(two, one.head.seq)
    assert same(one, two, three) and two.verify() == 3 + MOST_IN_A_BATCH


def test_a_node_that_joins_takes_in_more_than_it_holds_at_once(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_log, "_MOST_WAITING", 10)
    monkeypatch.setattr(shared_log, "PATIENCE_S", PATIENCE)
    settings = nats.shared().stream()
    one = join("one", settings)
    for _ in range(5):
        commit(one, [draft(number) for number in range(30)])
    assert join("two", settings).head == one.head


def test_whoever_is_behind_is_told_and_keeps_nothing(join: Join) -> None:
    settings = nats.shared().stream()
    one, two = join("one", settings), join("two", settings)
    write(one, 1)
    with pytest.raises(Behind):
        commit(two, [draft(7), draft(8)])
    assert two.gather() == 1, "what it was behind by is waited for"
    assert (two.head, len(list(two.read()))) == (one.head, 1)
    commit(two, [draft(7), draft(8)])
    until_seq(one, 3)
    assert same(one, two)


def test_nodes_that_write_at_the_same_time(join: Join) -> None:
    settings = nats.shared().stream()
    logs = [join(name, settings) for name in ("one", "two", "three")]
    threads = [
        threading.Thread(
            target=lambda log=log, at=at: [commit_first(log, 100 * at + n) for n in range(10)]
        )
        for at, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in logs:
        until_seq(log, 60)
        assert log.verify() == 60
    assert same(*logs)


def test_more_than_the_server_takes_at_once_is_refused(join: Join) -> None:
    log = join("one", nats.shared().stream())
    with pytest.raises(KbprocError) as error:
        commit(log, [draft(number) for number in range(MOST_IN_A_BATCH + 1)])
    assert (error.value.type, log.head) == ("store.io", START)


# ------------------------------------------------------------------- acknowledgements lost


@pytest.mark.parametrize("window_s", [600, 0.1], ids=["within", "beyond"])
@pytest.mark.parametrize("count", [1, 3])
def test_an_acknowledgement_that_is_lost(
    join: Join, monkeypatch: pytest.MonkeyPatch, window_s: float, count: int
) -> None:
    """A batch published twice is stored once, whether the server recognises it or not."""
    [server] = nats.shared()
    proxy = Proxy(server.port)
    settings = nats.shared().settings()
    ask(settings, partial(LogStream.create, replicas=1, window_s=window_s))
    behind = msgspec.structs.replace(settings, servers=[f"nats://127.0.0.1:{proxy.port}"])
    log = join("one", behind)
    write(log, 1)
    proxy.deaf = True

    def hear_again() -> None:
        proxy.lost.wait()
        proxy.deaf = False

    threading.Thread(target=hear_again, daemon=True).start()
    monkeypatch.setattr(stream, "ANSWERS_S", 0.2)  # a late acknowledgement is a lost one, too
    monkeypatch.setattr(shared_log, "PATIENCE_S", PATIENCE)
    written = commit(log, [draft(number) for number in range(count)])
    assert proxy.lost.is_set() and log.head == written[-1].position
    assert ask(settings, LogStream.state).last_seq == 1 + count
    assert same(log, join("two", settings))
    proxy.close()


# --------------------------------------------------------- streams that are not what they were


def test_a_stream_that_was_made_anew(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "DOUBT_S", 0.0)
    settings = nats.shared().stream()
    log = join("one", settings)
    write(log, 3)
    ask(settings, LogStream.delete)
    until(lambda: log.damage, "the damage")
    assert log.damage == f"There is no stream {settings.name}."
    ask(settings, partial(LogStream.create, replicas=1))
    until(lambda: "ends" in (log.damage or ""), "the damage")
    assert log.damage == "The stream ends at record 0, and this node holds 3."
    with pytest.raises(KbprocError) as error:
        write(log, 1)
    assert error.value.type == "store.corrupt"
    assert len(list(log.read())) == 3, "it reads on"


def test_a_stream_that_was_forked(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "DOUBT_S", 0.0)
    settings = nats.shared().stream()
    log = join("one", settings)
    write(log, 3)
    ask(settings, LogStream.delete)
    ask(settings, partial(LogStream.create, replicas=1))
    write(join("other", settings), 2)
    commit(join("other again", settings), [draft(9)])
    until(lambda: log.damage and "does not hold" in log.damage, "the damage")
    assert log.damage == (
        "The stream does not hold record 3 as this node does, which holds 1 record after 2."
    )


def test_a_message_that_is_no_record_of_the_chain(join: Join) -> None:
    settings = nats.shared().stream()
    log = join("one", settings)
    write(log, 2)
    other = records.encode(records.seal(draft(5), START))
    ask(
        settings, lambda stream: stream.publish([StreamMessage("x", other)], after_seq=2, batch="x")
    )
    until(lambda: log.gather() or log.damage, "the damage")
    assert log.damage == "The stream goes from seq 2 to 1 (message 3)."
    assert (log.head.seq, log.verify()) == (2, 2)


def test_a_long_stream_is_read_up_to_its_first_damage(join: Join) -> None:
    """Messages that were read ahead fill a queue after its reader has stopped; nothing hangs."""
    settings = nats.shared().stream()
    log = join("one", settings)
    write(log, 2)
    line = records.encode(records.seal(draft(5), START))
    for first in range(2, 2 + 3 * MOST_IN_A_BATCH, MOST_IN_A_BATCH):
        lines = [StreamMessage(f"x{first + n}", line) for n in range(MOST_IN_A_BATCH)]
        ask(settings, partial(LogStream.publish, lines=lines, after_seq=first, batch=f"x{first}"))
    with ThreadPoolExecutor(1) as beside:
        standing = beside.submit(compare, settings, log).result(timeout=PATIENCE)
    assert (standing.sound.seq, standing.remedy) == (2, "replace")


def test_a_message_that_was_lost(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "DOUBT_S", 0.0)
    settings = nats.shared().stream()
    one = join("one", settings)
    write(one, 4)
    ask(settings, partial(LogStream.erase, seq=3))
    two = join("two", settings)
    assert (two.head.seq, two.damage) == (2, "The stream has lost record 3.")


def test_an_answer_that_nobody_understands_ends_a_connection_and_not_the_node(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = nats.shared().stream()
    one, two = join("one", settings), join("two", settings)
    state, requested = LogStream.state, threading.Event()

    async def odd(stream: LogStream) -> StreamState:
        if requested.is_set():
            return await state(stream)
        requested.set()
        raise KeyError("state")

    async def lost(stream: LogStream) -> None:
        monkeypatch.setattr(LogStream, "state", odd)
        await stream.connection.close()

    two.run(lost)
    assert requested.wait(PATIENCE)
    write(one, 3)
    until_seq(two, 3)


# ------------------------------------------------------------------------ what is refused


def test_servers_that_are_too_old(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "OLDEST", (99, 0, 0))
    with pytest.raises(KbprocError) as error:
        join("one", nats.shared().stream())
    assert (error.value.type, error.value.retryable) == ("store.incompatible", False)
    assert error.value.message == "The NATS server has version 2.15.1."


def test_servers_that_do_not_sync(join: Join, tmp_path: Path) -> None:
    server = nats.Server(tmp_path, nats.free_ports(3), sync=False)
    servers = nats.Servers([server]).start()
    try:
        settings = servers.stream("lax")
        for options in (settings, msgspec.structs.replace(settings, monitor=[])):
            with pytest.raises(KbprocError) as error:
                join("one", options)
            assert error.value.type == "store.incompatible"
        write(join("two", msgspec.structs.replace(settings, unsafe_sync=True)), 1)
    finally:
        servers.kill()


def test_a_stream_that_nobody_has_made(join: Join) -> None:
    with pytest.raises(KbprocError) as error:
        join("one", nats.shared().settings())
    assert error.value.hint == "kbproc cluster init makes it."


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "kafka", "servers": ["nats://a"], "stream": "s"},
        {"kind": "jetstream", "servers": [], "stream": "s"},
        {"kind": "jetstream", "servers": ["nats://a"], "stream": "a b"},
        {"kind": "jetstream", "servers": ["nats://a"], "stream": "s", "sync": True},
    ],
)
def test_settings_that_can_not_be_used(table: dict[str, object]) -> None:
    with pytest.raises(KbprocError) as error:
        read(table)
    assert error.value.type == "store.corrupt"


def test_a_table_that_names_no_kind_opens_no_log(tmp_path: Path) -> None:
    """A log in the folder beside it would be a fork of the stream that the table names."""
    table = {"servers": ["nats://a"], "stream": "s"}
    with pytest.raises(KbprocError) as error:
        open_log(tmp_path / "log", START, marks=tmp_path / "marks", settings=table)
    assert error.value.type == "store.corrupt"
    assert not (tmp_path / "log").exists()


def test_only_a_log_of_several_nodes_is_clustered(join: Join, tmp_path: Path) -> None:
    assert clustered(FileLog.open(tmp_path / "log")) is None
    one = join("one", nats.shared().stream())
    assert clustered(one) is one


def test_a_node_without_a_server_begins_no_log(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write begins it; see JetStreamLog.begin."""
    monkeypatch.setattr(shared_log, "_CONNECTS_S", 0.2)
    [port] = nats.free_ports(1)
    servers = [f"nats://127.0.0.1:{port}"]
    one = join("one", StreamSettings(kind="jetstream", servers=servers, stream="s"))
    one.begin(lambda: commit(one, [draft(1)]))
    assert one.head == START


def test_the_server_of_the_tests_is_the_one_that_was_looked_at() -> None:
    if sys.platform == "linux":
        assert nats.sha256() == nats.SHA256


def test_a_store_alone_has_nothing_of_nats(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kbproc.base.host import Host\n"
        "from kbproc.knowledge.app.library import Library\n"
        "Library.open(Path('store'), host=Host(), cache=Path('cache')).close()\n"
        "assert not {name for name in sys.modules if 'nats' in name or 'jetstream' in name}\n"
    )
    environment = {"PYTHONPATH": str(REPO)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


def test_a_node_that_is_closed_while_it_connects_leaves_no_socket(tmp_path: Path) -> None:
    """The garbage collector would report an open socket as an error of a later test."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = StreamSettings(
            kind="jetstream",
            servers=[f"nats://127.0.0.1:{silent.getsockname()[1]}"],
            stream="team",
            unsafe_sync=True,
        )
        node = StreamLink(settings, JetStreamLog.open(tmp_path))
        node.start()
        connection, _ = silent.accept()
        connection.settimeout(PATIENCE)
        connection.sendall(b'INFO {"server_id":"x","version":"2.12.1","max_payload":1048576}\r\n')
        assert connection.recv(8) == b"CONNECT "
        node.close()
        while connection.recv(1 << 16):
            pass
        connection.close()
    gc.collect()
