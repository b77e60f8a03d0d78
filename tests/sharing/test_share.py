"""One store, many processes: later processes attach to the owner."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc import __version__
from kbproc.base.settings.config import SCOPES
from tests.conftest import OpenSession
from tests.kit import llm
from tests.kit.faults import faults_of, note
from tests.kit.patience import LONG, PATIENCE, PAUSE, until
from tests.kit.processes import (
    Client,
    Crowd,
    all_scopes_but,
    check_answers,
    check_once,
    held_at,
    holders,
    holding,
    maps,
    said,
    socket_of,
    titles,
)

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")

compared = faults_of("share")

WRITERS, EACH = (8, 200) if LONG else (4, 15)
AT_ONCE = 50 if LONG else 8
LATER = "a process that comes later is served by the one that has the store open"


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


def test_no_made_token_is_shown_where_it_could_be_repeated(crowd: Crowd) -> None:
    """A generated token appears neither in `retry` nor as a duplicate."""
    crowd.join()
    guest = crowd.join()
    guest.data("kb.create", slug="team")
    answer = guest.ask("kb.create", slug="team")
    assert answer["error"]["data"]["type"] == "resource.already_exists"
    assert "token" not in json.dumps(answer)
    for wrong in ({"slgu": "books"}, {"documents": [{"titel": "A", "text": "x"}]}):
        answer = guest.ask("doc.create" if "documents" in wrong else "kb.create", **wrong)
        assert answer["error"]["data"]["retry"]["params"]
        assert "token" not in json.dumps(answer)
    refusal = guest.ask("kb.create", slgu="books", client_token="mine")
    assert refusal["error"]["data"]["retry"]["params"]["client_token"] == "mine"
    first, second = (guest.ask("doc.create", title="One", text="same") for _ in range(2))
    assert first["result"]["data"]["id"] != second["result"]["data"]["id"]
    assert "duplicate" not in json.dumps([first, second])


def test_its_own_init_comes_first(crowd: Crowd) -> None:
    crowd.join(actor="ann")
    guest = crowd.join(actor="bob", scopes="doc:read,kb:read")
    init, ready = guest.events[None]
    assert (init["actor"], init["scopes"]) == ("bob", ["doc:read", "kb:read"])
    assert init["store"] == str(crowd.store)
    assert ready["seq"] == 1 and ready["freshness"]["seq"] == 1
    note("share", "a second serve while one has the store open", LATER)


@pytest.mark.usefixtures("executed")
def test_an_attached_process_loads_nothing_heavy(crowd: Crowd) -> None:
    owner, guest = crowd.join(), crowd.join()
    guest.data("search", query="anything")
    for library in ("_sqlite3", "tantivy", "numpy"):
        assert maps(owner.pid, library)
        assert not maps(guest.pid, library)
    assert not maps(owner.pid, "duckdb"), "only the process that runs SQL loads it"
    assert not maps(guest.pid, "faiss") and not maps(guest.pid, "onnxruntime")


def test_long_lines(crowd: Crowd) -> None:
    """Several lines at a time, both ways, exceed the buffer of any pipe or socket."""
    owner, guest = crowd.join(), crowd.join()
    texts = [f"word{n} " * 400_000 for n in range(2)]
    ids = [guest.start("doc.create", title=f"{n}", text=text) for n, text in enumerate(texts)]
    documents = [guest.answer(id)["result"]["data"]["id"] for id in ids]
    requests = [{"id": id, "text": True, "length": 3_000_000} for id in documents]
    reads = [guest.start("doc.get", **params) for params in requests]
    for read, params in zip(reads, requests, strict=True):
        got = guest.answer(read)["result"]["data"]["text"]
        assert got == owner.data("doc.get", **params)["text"]
        assert len(got) > 2_000_000
    check_answers(guest)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals(crowd: Crowd, signum: int, code: int) -> None:
    """An attached process ends like an owner; its waiting requests end, too."""
    owner, guest = crowd.join(), crowd.join()
    waits = guest.start("ping", min_seq=999)
    guest.data("ping")
    guest.kill(signum)
    assert guest.gone() == code
    assert guest.answer(waits)["error"]["data"]["type"] == "operation.cancelled"
    assert owner.data("ping")["seq"] == 1


# ----------------------------------------------------------------- separate connections


def test_scopes_do_not_leak(crowd: Crowd) -> None:
    owner = crowd.join(scopes="doc:write,doc:read")
    reader = crowd.join(scopes="doc:read")
    everything = crowd.join()
    nobody = crowd.join(scopes="")
    for _ in range(8):  # side by side
        written = [client.create("x") for client in (owner, everything)]
        refused = [client.create("y") for client in (reader, nobody)]
        verified = [client.start("events.verify") for client in (owner, everything, reader)]
        assert "result" in owner.answer(written[0]) and "result" in everything.answer(written[1])
        for client, id in zip(
            (reader, nobody, owner, reader), refused + verified[::2], strict=True
        ):
            assert client.answer(id)["error"]["data"]["type"] == "auth.insufficient_scope"
        assert "result" in everything.answer(verified[1])
    assert titles(reader) == {"x": 16}


def test_each_has_its_own_folder_and_root(crowd: Crowd, tmp_path: Path) -> None:
    for name in ("a", "b", "b/inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.md").write_text(f"# File of {name}\n\nwords\n")
    owner = crowd.join(cwd=tmp_path / "a")
    guest = crowd.join(cwd=tmp_path / "b")
    rooted = crowd.join(cwd=tmp_path / "b", root="inner")
    wide = crowd.join(cwd=tmp_path / "b", root=str(tmp_path))
    for client in (owner, guest):
        assert client.data("doc.ingest", paths=["x.md"])["added"] == 1
    assert rooted.data("doc.ingest", paths=["x.md"])["added"] == 1
    for client, path in ((guest, "../a/x.md"), (rooted, "../x.md"), (owner, "../b/x.md")):
        assert client.error("doc.ingest", paths=[path])["type"] == "path.outside_root"
    assert wide.data("doc.ingest", paths=["a/x.md"])["unchanged"] == 1
    paths = [document["source"]["path"] for document in owner.data("doc.list")]
    assert sorted(paths) == [str(tmp_path / name / "x.md") for name in ("a", "b/inner", "b")]


def test_each_has_its_own_limits(crowd: Crowd) -> None:
    narrow = crowd.join(max_in_flight=1, max_line_bytes=2000)
    wide = crowd.join()
    narrower = crowd.join(max_in_flight=1, max_line_bytes=1000)
    ids = [wide.create(f"{n}" + "x" * 180, tags=["long"]) for n in range(10)]
    assert all("result" in wide.answer(id) for id in ids)
    assert wide.data("doc.create", title="big", text="long " * 1000)["id"] == 11
    for client, limit in ((narrow, 2000), (narrower, 1000)):
        client.send(json.dumps({"title": "long " * 1000}))
        client.wait_for(lambda client=client: client.answers[None], "input.too_large")
        error = client.answers.pop(None)[0]["error"]["data"]
        assert (error["type"], error["detail"]) == ("input.too_large", {"max_line_bytes": limit})
        assert client.error("doc.get", id=11, text=True)["type"] == "input.too_large"
        assert client.data("ping")["seq"] >= 12


def test_each_writes_under_its_own_name(crowd: Crowd) -> None:
    """A token belongs to an actor and a method, not to a process."""
    ann, bob = crowd.join(actor="ann"), crowd.join(actor="bob")
    bob_too = crowd.join(actor="bob")
    params = {"title": "One", "text": "same", "client_token": "t"}
    ids = [client.data("doc.create", **params)["id"] for client in (ann, bob, bob_too)]
    assert ids == [1, 2, 2]
    written = crowd.run("call", "doc.create", "title=Two", "text=other", "--actor", "eve")
    assert written.code == 0, written
    records = [r for r in ann.data("events.read", after_seq=1) if r["method"] == "doc.create"]
    assert [record["actor"] for record in records] == ["ann", "bob", "eve"]


def test_a_stream_of_one_is_not_heard_by_another(crowd: Crowd) -> None:
    clients = [crowd.join() for _ in range(3)]
    streams = [client.start("events.subscribe", after_seq=0) for client in clients[:2]]
    clients[2].create("x")
    for client, id in zip(clients, streams, strict=False):
        client.wait_for(lambda c=client, i=id: c.types(i).count("item") >= 2, "an item")
        client.cancel(id)
        assert client.answer(id)["error"]["data"]["type"] == "operation.cancelled"
        check_answers(client)
    assert set(clients[2].events) <= {None}


def test_what_one_did_not_live_to_hear_is_not_heard_by_the_next(crowd: Crowd) -> None:
    """The client dies with unread lines, so the owner's next read from its socket fails."""

    def script(question: str) -> list[llm.Step]:
        return [llm.say("one "), pause, llm.say("two"), llm.finish()]

    def pause(reply: llm.Reply) -> None:
        reply.endpoint.released.wait(PATIENCE)

    with llm.endpoint(script) as endpoint:
        owner, dying = crowd.join(llm=endpoint.url), crowd.join()
        owner.data("doc.create", title="Git", text="Git is installed by make.")
        for _ in range(9):
            dying.data("ping")
        chat = dying.start("chat", question="How is git installed by make?")
        feed = dying.start("events.subscribe")
        dying.wait_for(lambda: "answer" in dying.types(chat), "the first word")
        dying.wait_for(lambda: "init" in dying.types(feed), "init")
        dying.kill(signal.SIGSTOP)
        for number in range(20):  # within the feed's limit, so some events are in the socket
            owner.data("doc.create", title=f"Unread {number}", text="Nobody reads its event.")
        dying.kill()
        dying.gone()
        message = {name: dying.events[chat][0][name] for name in ("session_id", "message_id")}
        others = crowd.together(3)
        endpoint.released.set()
        assert owner.data("session.resume", **message)["status"] == "finished"
        for other in others:
            other.data("ping")
            assert set(other.events) == {None}
            check_answers(other)


@pytest.mark.parametrize("writer_owns", [True, False])
def test_what_one_wrote_the_other_reads(crowd: Crowd, writer_owns: bool) -> None:
    first, reader = crowd.join(), crowd.join()
    writer = first if writer_owns else crowd.join()
    for n in range(200 if LONG else 30):
        result = writer.answer(writer.create(f"{n}"))["result"]
        got = reader.data("doc.get", id=result["data"]["id"], min_seq=result["meta"]["seq"])
        assert got["title"] == f"{n}"
    waits = reader.start("ping", min_seq=result["meta"]["seq"] + 1)
    writer.create("one more")
    assert "result" in reader.answer(waits)
    note(
        "share",
        "a read by one process with the min_seq of another's write",
        "it sees that write, every time",
    )


# ------------------------------------------------------------------------- commands


def test_commands_while_a_serve_owns(crowd: Crowd, tmp_path: Path) -> None:
    owner = crowd.join()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.md").write_text("# Alpha\n\nbeta gamma\n")
    added = crowd.run("add", "a.md", cwd=tmp_path / "here")
    assert added.code == 0, added
    assert json.loads(added.out)["data"]["added"] == 1
    search = crowd.run("search", "gamma", "--limit", "3")
    assert json.loads(search.out)["data"]["results"][0]["source"]["title"] == "Alpha"
    assert crowd.run("doctor", "--strict").code == 0
    assert crowd.run("call", "doc.get", "id=7").code == 5
    plan = crowd.run("doc", "delete", "1")
    assert plan.code == 10 and json.loads(plan.err)["error"]["plan"]["plan_hash"]
    deleted = crowd.run("doc", "delete", "1", "--yes=bulk")
    assert deleted.code == 0, deleted
    streamed = crowd.run("--format", "ndjson", "store", "export")
    assert json.loads(streamed.out.splitlines()[0])["type"] == "init"
    assert owner.data("doc.list") == []
    assert holders(crowd.store) == [owner.pid]
    note(
        "share",
        "commands that read, write, delete and stream, while a serve has the store open",
        LATER,
    )


def test_several_commands_at_once_while_a_serve_owns(crowd: Crowd) -> None:
    owner = crowd.join()
    started = [
        crowd.command("call", "doc.create", f"title=n{n}", f"text=words of {n}") for n in range(8)
    ]
    results = [said(command) for command in started]
    assert [result.code for result in results] == [0] * 8, results
    assert titles(owner) == {f"n{n}": 1 for n in range(8)}


def test_interrupted_command_leaves_the_owner_alone(crowd: Crowd) -> None:
    owner = crowd.join()
    command = crowd.command("--format", "ndjson", "call", "events.subscribe", "after_seq=0")
    assert command.stdout is not None
    while json.loads(command.stdout.readline())["type"] != "item":
        pass
    command.send_signal(signal.SIGINT)
    assert said(command).code == 130
    assert owner.data("ping")["seq"] == 1


def test_a_commands_stream_continues_under_the_next_owner(crowd: Crowd) -> None:
    owner, other = crowd.join(), crowd.join()
    assert "result" in owner.answer(owner.create("one"))
    command = crowd.command("--format", "ndjson", "call", "events.subscribe", "after_seq=0")
    assert command.stdout is not None
    events: list[Any] = []

    def read_until(seq: int) -> None:
        while not events or events[-1].get("item", {}).get("seq") != seq:
            events.append(json.loads(command.stdout.readline()))  # type: ignore[union-attr]

    read_until(2)
    owner.kill()
    assert "result" in other.answer(other.create("two"))
    read_until(3)
    command.send_signal(signal.SIGINT)
    assert said(command).code == 130
    assert [one["item"]["seq"] for one in events if one["type"] == "item"] == [1, 2, 3]
    assert [one["index"] for one in events] == list(range(len(events)))
    assert [one["type"] for one in events].count("init") == 1


# ------------------------------------------------------------------------ many at once


def write_all(client: Client, number: int, count: int, sent: list[str]) -> list[str]:
    """Gives every second write a token; returns the titles that were acknowledged."""
    names = [f"{number}-{n}" for n in range(count)]
    sent += names
    done: list[str] = []
    for start in range(0, count, 20):
        some = names[start : start + 20]
        ids = [
            client.create(name, **({"client_token": name} if n % 2 else {}))
            for n, name in enumerate(some)
        ]
        done += [name for name, id in zip(some, ids, strict=True) if "result" in client.answer(id)]
    return done


def test_many_writers(crowd: Crowd, open_session: OpenSession) -> None:
    clients = crowd.together(WRITERS)
    sent: list[str] = []
    done: list[str] = []
    threads = [
        threading.Thread(target=lambda c=client, n=n: done.extend(write_all(c, n, EACH, sent)))
        for n, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == len(sent) == WRITERS * EACH
    check_once(clients[-1], acknowledged=done, sent=sent)
    for client in clients:
        check_answers(client)
    assert [client.end() for client in clients] == [0] * WRITERS
    session = open_session()
    assert session.store.log.verify() == session.store.seq == 1 + len(sent)
    note("share", "many processes write at once", "every write there, none twice")


@pytest.mark.usefixtures("executed")
def test_many_serves_at_once_on_a_new_store(crowd: Crowd) -> None:
    assert not crowd.store.exists()
    pids: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(PAUSE):
            pids.update(holders(crowd.store))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        clients = [crowd.spawn() for _ in range(AT_ONCE)]
        ids = [client.create(f"{n}") for n, client in enumerate(clients)]
        answers = [client.answer(id) for client, id in zip(clients, ids, strict=True)]
    finally:
        over.set()
        looking.join()
    assert all("result" in answer for answer in answers), answers
    assert {client.types()[0] for client in clients} == {"init"}
    assert len(pids) == 1 and pids <= {client.pid for client in clients}
    assert sum(maps(client.pid, "tantivy") for client in clients) == 1
    assert int((crowd.store / "lock").read_text().splitlines()[0]) in pids
    assert titles(clients[0]) == {f"{n}": 1 for n in range(AT_ONCE)}
    for client in clients:  # so most owners leave while others are attached
        client.leave()
    assert [client.gone() for client in clients] == [0] * AT_ONCE
    assert "store.locked" not in crowd.told()
    note(
        "share",
        "many processes start in the same moment on a new store",
        "one has it open, all are answered; nobody hears of a lock",
    )


def test_many_commands_at_once_on_a_new_store(crowd: Crowd) -> None:
    crowd.store.mkdir(mode=0o700)
    (crowd.store / "store.toml").write_text('format = 2\n\n[model]\nkind = "hash"\nname = "hash"\n')
    commands = [
        crowd.command("--store", str(crowd.store), "call", *rest)
        for n in range(AT_ONCE // 2)
        for rest in (["ping"], ["doc.create", f"title=n{n}", f"text=words of {n}"])
    ]
    results = [said(command) for command in commands]
    assert [result for result in results if result.code != 0] == []
    assert all(json.loads(result.out)["ok"] for result in results)
    assert titles(crowd.join()) == {f"n{n}": 1 for n in range(AT_ONCE // 2)}
    note(
        "share",
        "many commands start in the same moment on a new store",
        "one has it open after the other, all are answered; nobody hears of a lock",
    )


def test_reads_while_others_write(crowd: Crowd) -> None:
    clients = crowd.together(5)
    reader, *writers = sorted(clients, key=lambda client: client.pid in holders(crowd.store))
    over = threading.Event()

    def write(client: Client) -> None:
        n = 0
        while not over.is_set():
            client.answer(client.create(f"{client.pid}-{(n := n + 1)}"))

    for n in range(30):
        reader.answer(reader.create(f"git {n}"))
    threads = [threading.Thread(target=write, args=(client,)) for client in writers]
    for thread in threads:
        thread.start()
    try:
        for _ in range(500 if LONG else 25):
            assert reader.data("search", query="git")["results"]
            assert reader.data("doc.get", id=1)["title"] == "git 0"
        reader.wait_for(lambda: sum(titles(reader).values()) >= 40, "what the others write")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    note("share", "a process reads while four others write", "every read answered")


def test_no_read_waits_for_the_disk(crowd: Crowd) -> None:
    owner = crowd.join(program=held_at("log.sync"))
    reader, writer = crowd.join(), crowd.join()
    writer.answer(writer.create("before"))
    with holding(crowd) as is_held:
        late = writer.create("late")
        until(is_held, "a write that waits for the disk")
        for client in (owner, reader, writer):
            assert client.data("search", query="words")["results"]
            assert client.data("doc.get", id=1)["title"] == "before"
            assert titles(client) == {"before": 1}
        assert writer.answers[late] == []
    assert "result" in writer.answer(late)
    assert titles(reader) == {"before": 1, "late": 1}
    note(
        "share", "a write waits for the disk", "every read meanwhile is answered, by all processes"
    )


# --------------------------------------------------------------- files of dead processes


def test_socket_and_lock_of_a_dead_process(crowd: Crowd) -> None:
    dead = crowd.join()
    dead.answer(dead.create("before"))
    dead.kill()
    dead.gone()
    assert stat.S_ISSOCK(socket_of(crowd.store).stat().st_mode)
    assert int((crowd.store / "lock").read_text().splitlines()[0]) == dead.pid
    ping = crowd.run("call", "ping")
    assert (ping.code, ping.err) == (0, ""), ping
    client = crowd.join()
    assert titles(client) == {"before": 1}
    assert titles(crowd.join()) == {"before": 1}
    note(
        "share",
        "socket and lock of a process that was killed -9 lie in the store",
        "the next process just works",
    )


def test_a_socket_that_is_something_else(crowd: Crowd) -> None:
    crowd.join().end()
    (crowd.store / "kbproc.sock").write_text("no socket\n")
    (crowd.store / "lock").write_text("1\n" + str(crowd.store / "kbproc.sock") + "\n")
    assert crowd.join().data("ping")["seq"] == 1
    assert crowd.run("call", "ping").code == 0


def test_a_long_path(tmp_path: Path) -> None:
    store = tmp_path / ("long" * 20) / ("path" * 20) / "store"
    store.parent.mkdir(parents=True)
    assert len(str(store)) > 150
    with Crowd(tmp_path, store) as crowd:
        runtime = tmp_path / "run"
        owner, guest = (crowd.join(runtime=str(runtime / "kbproc")) for _ in range(2))
        guest.answer(guest.create("x"))
        assert titles(owner) == {"x": 1}
        path = socket_of(store)
        assert path.parent == runtime / "kbproc" and len(os.fsencode(path)) <= 107
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert crowd.run("call", "ping", XDG_RUNTIME_DIR=str(runtime)).code == 0
        assert crowd.run("call", "ping").code == 0  # later processes read the socket's place
        assert holders(store) == [owner.pid]
        owner.end()
        assert titles(guest) == {"x": 1}
        guest.end()
        assert list(path.parent.iterdir()) == []
    note(
        "share",
        "a store whose path is too long for a socket",
        "the socket lies in the runtime folder; all as usual",
    )


# --------------------------------------------------------------------------- handshakes


def hello(crowd: Crowd, **changed: Any) -> bytes:
    fields = {
        "share": 1,
        "version": __version__,
        "surface": "serve",
        "cwd": str(crowd.folder),
        "runtime": "",
        "root": str(crowd.folder),
        "actor": "raw",
        "scopes": sorted(SCOPES),
        "kb": "default",
        "max_line_bytes": 1 << 20,
        "max_in_flight": 8,
        "allow_private_addresses": False,
        **changed,
    }
    return json.dumps(fields).encode() + b"\n"


class Raw:
    """A connection to the owner's socket that may break the protocol."""

    def __init__(self, crowd: Crowd, data: bytes = b"") -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(socket_of(crowd.store)))
        self._file = self.socket.makefile("rb")
        self.socket.sendall(data)

    def line(self) -> Any:
        """Returns the next line, or None at the end."""
        try:
            line = self._file.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def raws() -> Iterator[list[Raw]]:
    opened: list[Raw] = []
    yield opened
    for raw in opened:
        raw.close()


def still_well(crowd: Crowd, *clients: Client) -> None:
    """Checks that the clients still get answers, and that a new process can attach."""
    for client in clients:
        assert client.data("ping")["seq"] >= 1
    crowd.join().end()


def test_modes(crowd: Crowd) -> None:
    previous = os.umask(0)
    try:
        crowd.join()
    finally:
        os.umask(previous)
    assert stat.S_IMODE(crowd.store.stat().st_mode) == 0o700
    path = socket_of(crowd.store)
    assert path == crowd.store / "kbproc.sock"
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o600, os.getuid())


def test_a_hello_that_is_right(crowd: Crowd, raws: list[Raw]) -> None:
    """A correct hello is accepted, so that the tests below fail for the wrong field alone."""
    owner = crowd.join()
    raws.append(Raw(crowd, hello(crowd)))
    welcome = raws[0].line()
    assert (welcome["share"], welcome["ok"], welcome["pid"]) == (1, True, owner.pid)
    assert "doc.create" in welcome["writes"] and "ping" not in welcome["writes"]
    assert raws[0].line()["params"]["type"] == "ready"


def test_another_version_is_told_so(crowd: Crowd, raws: list[Raw]) -> None:
    owner = crowd.join()
    for number in (0, 2, 99, "1", None):
        raws.append(Raw(crowd, hello(crowd, share=number)))
        answer = raws[-1].line()
        assert (answer["share"], answer["ok"]) == (1, False)
        assert answer["error"]["type"] == "store.incompatible"
        assert answer["error"]["hint"]
        assert raws[-1].line() is None
    still_well(crowd, owner)
    note("share", "a process that shares stores in another way", "store.incompatible; others go on")


WRONG_HELLOS = {
    "garbage": b"\xff\x00garbage\n",
    "no object": b"[1]\n",
    "a request": b'{"jsonrpc":"2.0","id":1,"method":"doc.list"}\n',
    "nothing but a newline": b"\n",
    "deep": b"[" * 10_000 + b"\n",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def test_no_hello(crowd: Crowd, raws: list[Raw]) -> None:
    owner, guest = crowd.join(), crowd.join()
    for name, data in WRONG_HELLOS.items():
        raws.append(raw := Raw(crowd, data))
        answer = raw.line()
        assert answer is None or answer["ok"] is False, (name, answer)
        assert raw.line() is None, name
        assert guest.data("ping")["seq"] == owner.data("ping")["seq"] == 1
    still_well(crowd, owner, guest)
    assert "Traceback" not in owner.told()
    note("share", "something else than kbproc speaks to the socket", "refused; others go on")


WRONG_FIELDS: list[dict[str, Any]] = [
    {"scopes": ["root", "doc:reed"]},
    {"scopes": "admin"},
    {"cwd": 7},
    {"max_in_flight": "x"},
    {"max_line_bytes": -1},
    {"actor": None},
]


def test_a_wrong_hello(crowd: Crowd, raws: list[Raw]) -> None:
    """A wrong hello is refused, or accepted without any scope that does not exist."""
    owner, guest = crowd.join(), crowd.join()
    for wrong in WRONG_FIELDS:
        raws.append(raw := Raw(crowd, hello(crowd, **wrong)))
        answer = raw.line()
        if answer is not None and answer["ok"]:
            assert wrong.keys() & {"scopes", "max_line_bytes"}, (wrong, answer)
            raw.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"doc.list"}\n')
            while (heard := raw.line()) is not None and "method" in heard:
                pass
            assert heard is None or "error" in heard, (wrong, heard)
        assert guest.data("ping")["seq"] == owner.data("ping")["seq"] == 1
    still_well(crowd, owner, guest)
    assert "Traceback" not in owner.told()


def test_an_endless_hello(crowd: Crowd, raws: list[Raw]) -> None:
    owner, guest = crowd.join(), crowd.join()
    raws.append(raw := Raw(crowd))
    before = memory_of(owner)
    with pytest.raises(ConnectionError):
        for _ in range(256):
            raw.socket.sendall(bytes(1 << 20))
    assert memory_of(owner) < before + 64
    still_well(crowd, owner, guest)
    note("share", "an endless first line at the socket", "refused; others go on")


def memory_of(client: Client) -> float:
    """Returns the resident memory in MiB."""
    status = Path(f"/proc/{client.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def test_many_who_say_nothing(crowd: Crowd, raws: list[Raw]) -> None:
    owner, guest = crowd.join(), crowd.join()
    raws += [Raw(crowd, data) for data in (b"", b'{"share":1,', hello(crowd)[:-1]) * 20]
    still_well(crowd, owner, guest)
    assert owner.end() == 0  # silent connections do not delay the end
    still_well(crowd, guest)
    note("share", "many connect and say nothing", "others go on, and the owner may end")


def test_one_who_does_not_read(crowd: Crowd, raws: list[Raw]) -> None:
    """Only the requests of a client that does not read wait; others are answered."""
    owner, guest = crowd.join(), crowd.join()
    guest.data("doc.create", title="big", text="long " * 100_000)
    asks = [
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": n,
                "method": "doc.get",
                "params": {"id": 1, "text": True, "length": 400_000},
            }
        ).encode()
        + b"\n"
        for n in range(8)
    ]
    raws.append(raw := Raw(crowd, hello(crowd) + b"".join(asks)))
    until(lambda: owner.data("ping"), "an answer")
    still_well(crowd, owner, guest)
    assert raw.line()["ok"] is True
    assert owner.end() == 0
    still_well(crowd, guest)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user(crowd: Crowd) -> None:
    owner, guest = crowd.join(), crowd.join()
    crowd.store.chmod(0o777)
    socket_of(crowd.store).chmod(0o777)
    program = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"s = socket.socket(socket.AF_UNIX); s.settimeout({PATIENCE}); s.connect('kbproc.sock')\n"
        "try:\n"
        "    s.sendall(sys.stdin.buffer.read()); print(s.recv(4096))\n"
        "except ConnectionError: print(b'')\n"
    )
    line = hello(crowd) + b'{"jsonrpc":"2.0","id":1,"method":"doc.list"}\n'
    heard = subprocess.run(
        [sys.executable, "-c", program],
        cwd=crowd.store,
        input=line,
        capture_output=True,
        check=True,
    )
    assert heard.stdout == b"b''\n", heard
    still_well(crowd, owner, guest)
    note(
        "share",
        "another user connects, the socket's mode having been opened to all",
        "refused without a word",
    )


def test_nothing_is_left(crowd: Crowd) -> None:
    """Only the lock file stays, because removing it could allow two owners."""
    clients = [crowd.join(scopes=all_scopes_but("admin")) for _ in range(3)]
    clients[0].answer(clients[0].create("x"))
    for client in clients:
        client.leave()
    assert [client.gone() for client in clients] == [0, 0, 0]
    assert holders(crowd.store) == []
    assert not (crowd.store / "kbproc.sock").exists()
    assert titles(crowd.join()) == {"x": 1}
