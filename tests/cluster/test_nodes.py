"""Several nodes that share one stream as their log: real servers, real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.stream import LogStream
from kbproc.knowledge.app.health import salvage
from tests.kit.fixed import FixedHost
from tests.kit.llm import endpoint, hang, say
from tests.kit.nats import NEAR, Servers, put_settings, shared
from tests.kit.pages import blocks
from tests.kit.patience import until
from tests.kit.shell import in_process
from tests.kit.start import REPO
from tests.kit.talk import Process, Session, as_bytes, request

UPDATES = os.environ.get("KBPROC_UPDATE_DOCS") == "1"
# The addresses and the hash on the page
PAGE_SERVER, PAGE_MONITOR = "nats://10.0.0.1:4222", "http://10.0.0.1:8222"
HASH = "55d86e8dd37565caf2e18d543015c261"

MakeNode = Callable[..., Process]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MakeNode]:
    processes: list[Process] = []

    def make(name: str, settings: Any, **options: Any) -> Process:
        if not (tmp_path / name).exists():
            put_settings(tmp_path / name, settings)
        options = {"real": "1", "doubt_s": "0.2", **NEAR, **options}  # one server has no elections
        processes.append(Process(tmp_path / name, cwd=tmp_path, **options))
        return processes[-1].ready()

    yield make
    for process in processes:
        process.stop()


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "log").iterdir()))


def create(process: Process, id: int, title: str) -> Any:
    return process.ask(id, "doc.create", title=title, text=f"This is about {title} and tea.")


def is_embedded(process: Process, seq: int) -> bool:
    freshness = process.ask("embedded", "status", min_seq=seq)["result"]["meta"]["freshness"]
    return bool(freshness["vector_seq"] == seq)


def test_two_nodes_write_one_log_and_answer_alike(node: MakeNode, tmp_path: Path) -> None:
    settings = shared().stream()
    one, two = node("one", settings), node("two", settings)
    written: list[Any] = []

    def write(process: Process, name: str) -> None:
        for number in range(10):
            written.append(create(process, number, f"{name} {number}"))

    threads = [
        threading.Thread(target=write, args=(one, "one")),
        threading.Thread(target=write, args=(two, "two")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seqs = [answer["result"]["meta"]["seq"] for answer in written]
    assert sorted(seqs) == list(range(2, 22)), "each write is one record, and none is twice"
    until(lambda: is_embedded(one, 21) and is_embedded(two, 21), "both nodes' vectors")
    for method, params in (
        ("doc.list", {}),
        ("search", {"query": "tea", "limit": 30}),
        ("events.read", {"limit": 50}),
    ):
        answers = []
        for process in (one, two):
            answer = process.ask(method, method, min_seq=21, **params)
            answer["result"]["meta"].pop("took_ms", None)
            answers.append(answer)
        assert "result" in answers[0]
        assert json.dumps(answers[0]) == json.dumps(answers[1]), "equal to the byte"
    one.close(), two.close()
    assert log_of(tmp_path / "one") == log_of(tmp_path / "two")
    assert log_of(tmp_path / "one").count(b"\n") == 21


def test_without_a_server_a_node_reads_on_and_catches_up(node: MakeNode, tmp_path: Path) -> None:
    servers = Servers.make(tmp_path / "nats").start()
    try:
        settings = servers.stream()
        one, two = node("one", settings), node("two", settings, connects_s="0.5")
        assert create(one, 1, "before")["result"]["meta"]["seq"] == 2
        assert two.ask(1, "doc.list", min_seq=2)["result"]["meta"]["count"] == 1
        servers.kill()
        refused = create(two, 2, "meanwhile")["error"]["data"]
        assert (refused["type"], refused["retryable"]) == ("store.io", True)
        assert two.ask(3, "search", query="tea")["result"]["meta"]["seq"] == 2
        servers.start()
        answers: list[Any] = []
        until(lambda: answers.append(create(one, 4, "after")) or "result" in answers[-1], "a write")
        assert answers[-1]["result"]["meta"]["seq"] == 3
        assert two.ask(4, "doc.list", min_seq=3)["result"]["meta"]["count"] == 2
    finally:
        servers.kill()


def test_a_node_that_begins_without_a_server_is_empty_until_one_can_be_reached(
    node: MakeNode, tmp_path: Path
) -> None:
    servers = Servers.make(tmp_path / "nats").start()
    try:
        settings = servers.stream()
        one = node("one", settings)
        assert create(one, 1, "before")["result"]["meta"]["seq"] == 2
        servers.kill()
        two = node("two", settings, connects_s="0.2")
        alone = told(two.ask(1, "cluster.status"))
        assert (alone["seq"], alone["connected"]) == (0, False)
        assert told(two.ask(2, "doc.list")) == []
        refused = create(two, 3, "meanwhile")["error"]["data"]
        assert (refused["type"], refused["retryable"]) == ("store.io", True)
        servers.start()
        until(lambda: told(two.ask(4, "cluster.status"))["seq"] == 2, "what the stream holds")
        assert create(two, 5, "after")["result"]["meta"]["seq"] == 3
    finally:
        servers.kill()


@pytest.mark.parametrize("place", ["_adopt", "rebuild.rebuild"])
def test_a_join_that_is_cut_off_is_repeated(
    node: MakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The join stops when the log is already the stream's, and the projections are not."""
    settings = shared().stream()
    where = {name: getattr(settings, name) for name in ("servers", "stream", "monitor")}
    one = node("one", settings)
    create(one, 1, "kept")
    two = Session(tmp_path / "two", cwd=tmp_path)

    def die(*args: object) -> None:
        raise KbprocError("store.io", "Cut off.")

    with monkeypatch.context() as patch:
        patch.setattr(f"kbproc.knowledge.cluster.moving.{place}", die)
        assert two.ask("cluster.join", **where)["error"]["message"] == "Cut off."
    two.close()
    again = Process(tmp_path / "two", cwd=tmp_path, real="1").ready()
    try:
        if not told(again.ask(1, "cluster.status"))["shared"]:
            told(again.ask(2, "cluster.join", **where))
        assert again.ask(3, "doc.list", min_seq=2)["result"]["meta"]["count"] == 1
        heads = [told(process.ask(4, "cluster.status")) for process in (one, again)]
        assert heads[0]["hash"] == heads[1]["hash"]
    finally:
        again.stop()


def told(answer: Any) -> Any:
    assert "result" in answer, answer
    return answer["result"]["data"]


def test_a_store_is_shared_joined_and_taken_back(tmp_path: Path) -> None:
    """A store moves into a stream, a second node joins and leaves: head and hash stay equal."""
    [server] = shared()
    where = {"servers": [server.url], "stream": "moved", "monitor": [server.monitor]}
    one = Process(tmp_path / "one", cwd=tmp_path, real="1").ready()
    two = Process(tmp_path / "two", cwd=tmp_path, real="1").ready()
    try:
        for number in range(5):
            create(one, number, f"paper {number}")
        before = told(one.ask(10, "cluster.status"))
        assert (before["shared"], before["seq"]) == (False, 6)
        assert told(one.ask(11, "cluster.init", **where))["hash"] == before["hash"]
        refused = one.ask(12, "cluster.join", **where)["error"]["data"]
        assert refused["type"] == "resource.conflict"
        assert told(two.ask(1, "cluster.join", **where)) == {
            "stream": "moved",
            "seq": 6,
            "hash": before["hash"],
        }
        assert create(two, 2, "paper of two")["result"]["meta"]["seq"] == 7
        assert one.ask(13, "doc.list", min_seq=7)["result"]["meta"]["count"] == 6
        status = told(one.ask(14, "cluster.status"))
        assert (status["connected"], status["seq"], status["stream_seq"]) == (True, 7, 7)
        doctor = told(one.ask(15, "doctor"))
        assert [f["status"] for f in doctor["findings"] if f["name"] == "cluster"] == ["pass"]
        assert told(two.ask(3, "cluster.leave"))["hash"] == status["hash"]
        assert create(two, 4, "alone")["result"]["meta"]["seq"] == 8
        one.ask(16, "store.backup", path="backup")
    finally:
        one.stop(), two.stop()
    assert "[log]" in (tmp_path / "one" / "store.toml").read_text()
    for folder in ("two", "backup"):
        assert "[log]" not in (tmp_path / folder / "store.toml").read_text()
    again = Process(tmp_path / "one", cwd=tmp_path, real="1").ready()
    assert told(again.ask(1, "cluster.status"))["seq"] == 7
    again.stop()


def test_the_page_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [server] = shared()
    run = in_process(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("KBPROC_FORMAT", "text")
    page = REPO / "docs/cluster.md"
    text = page.read_text()
    (block,) = [b for b in blocks(page) if b.text.startswith("$ kbproc --store ~/kb")]
    assert run("--store", "one", "doc", "create", "--title", "Tea", "--text", "Tea is hot.")[0] == 0
    printed = ""
    for line in [line for line in block.text.splitlines() if line.startswith("$ ")]:
        command = line.partition("  #")[0].removeprefix("$ ")
        names = {
            "~/kb": "one",
            "~/two": "two",
            PAGE_SERVER: server.url,
            PAGE_MONITOR: server.monitor,
        }
        for name, here in names.items():
            command = command.replace(name, here)
        code, out, _ = run(*shlex.split(command)[1:])
        assert code == 0, command
        printed += f"{line}\n{re.sub('[0-9a-f]{32}', HASH, out.replace(server.url, PAGE_SERVER))}"
    if UPDATES:
        page.write_text(text.replace(block.text, printed, 1))
    assert printed in page.read_text(), "KBPROC_UPDATE_DOCS=1 writes it"


def test_three_servers_keep_each_record_where_three_are_named(tmp_path: Path) -> None:
    """One server named three times is refused: fewer copies need an explicit `replicas`."""
    [server] = shared()
    there = {"servers": 3 * [server.url], "stream": "threefold", "monitor": [server.monitor]}
    one = Session(tmp_path / "one", cwd=tmp_path)
    refused = one.error("cluster.init", **there)
    assert (refused["type"], "replicas > 1" in refused["message"]) == ("store.io", True), refused
    assert one.data("cluster.init", **there, replicas=1)["seq"] == 1
    one.close()


def test_an_answer_that_a_node_was_making_when_it_died_ends_for_all_once_it_is_back(
    node: MakeNode,
) -> None:
    """Answers of other nodes stay unfinished, because those nodes may still be writing them."""
    settings = shared().stream()
    two = node("two", settings)

    def states() -> list[str | None]:
        sessions = told(two.ask(1, "session.list"))
        return [
            told(two.ask(2, "session.get", session_id=one["id"]))["messages"][-1]["status"]
            for one in sessions
        ]

    with endpoint(lambda question: [say("It takes"), hang]) as model:
        one = node("one", settings, llm=model.url)
        three = node("three", settings, llm=model.url)
        create(one, 1, "tea")
        for process, id in ((one, 2), (three, 3)):
            process.ask("known", "ping", min_seq=2)
            process.send(as_bytes(request(id, "chat", question="What is about tea?")))
        until(lambda: len(model.asked) == 2 and len(states()) == 2, "both answers")
        one.process.kill()
        one.process.wait()
        one = node("one", settings, llm=model.url)
        until(lambda: "interrupted" in states(), "the end")
        assert states().count("interrupted") == states().count(None) == 1


def test_a_log_is_moved_to_servers_and_back(tmp_path: Path) -> None:
    """Moving back needs a server that answers what the stream holds; `cluster leave` does not."""
    servers = Servers.make(tmp_path / "nats").start()
    one = Process(tmp_path / "one", cwd=tmp_path, real="1").ready()
    there = {"to": [servers[0].url], "monitor": [servers[0].monitor]}
    try:
        create(one, 1, "paper")
        before = told(one.ask(2, "cluster.status"))
        plan = one.ask(3, "store.move", **there, dry_run=True)["result"]["meta"]["plan"]
        assert plan["changes"] == ["publish 2 records as the stream kbproc"]
        moved = told(one.ask(4, "store.move", **there))
        assert moved == {"stream": "kbproc", "seq": 2, "hash": before["hash"]}
        assert create(one, 5, "there")["result"]["meta"]["seq"] == 3
        there_too = told(one.ask(6, "cluster.status"))
        servers.kill()
        refused = one.ask(7, "store.move", to=["file"])["error"]["data"]
        assert refused["type"] == "store.io", refused
        assert told(one.ask(8, "cluster.status"))["shared"]
        servers.start()
        moves: list[Any] = []
        until(
            lambda: "result" in (moves.append(one.ask(9, "store.move", to=["file"])) or moves[-1]),
            "it",
        )
        assert told(moves[-1]) == {"stream": None, "seq": 3, "hash": there_too["hash"]}
        assert create(one, 10, "here")["result"]["meta"]["seq"] == 4
    finally:
        one.stop()
        servers.kill()


def test_a_store_says_nothing_to_servers_that_nobody_approved(tmp_path: Path) -> None:
    put_settings(tmp_path / "one", shared().stream())
    (tmp_path / "trusted.json").unlink()
    one = Process(tmp_path / "one", cwd=tmp_path, real="1")
    error = one.ask(1, "doc.list")["error"]["data"]
    one.stop()
    assert error["type"] == "store.incompatible" and "link --trust" in error["hint"]


def test_sources_and_long_records_reach_every_node(node: MakeNode) -> None:
    """A node fetches a source on its first read; a record above the server's limit has its bytes
    beside the stream.
    """
    settings = shared().stream()
    one, two = node("one", settings), node("two", settings)
    long = "".join(f"Word{number} is in line {number}.\n" for number in range(50_000))
    created = [
        told(one.ask(1, "doc.create", title="Short", text="Tea with milk.")),
        told(one.ask(2, "doc.create", title="Long", text=long)),
    ]
    assert two.ask(1, "doc.list", min_seq=3)["result"]["meta"]["count"] == 2
    for document, text in zip(created, ("Tea with milk.", long), strict=True):
        answer = told(two.ask(2, "doc.get", id=document["id"], text=True, length=2_000_000))
        assert answer["text"] == text
    told(one.ask(3, "agent.create", slug="ann"))
    told(one.ask(4, "note.put", agent="ann", slug="plan", text="Buy tea."))
    seq = told(one.ask(5, "ping"))["seq"]
    two.ask(6, "ping", min_seq=seq)
    assert told(two.ask(4, "note.sync", agent="ann"))["warnings"] == []
    note = told(two.ask(5, "note.get", agent="ann", slug="plan"))
    assert note["text"] == "Buy tea."


def test_notes_folders_follow_and_no_edit_is_lost(node: MakeNode, tmp_path: Path) -> None:
    """Each node has its own folder with the notes of all nodes; an edit by hand is recorded, even
    if another node has changed the note in the same period.
    """
    settings = shared().stream()
    one, two = node("one", settings), node("two", settings)
    folder = tmp_path / "two" / "notes" / "ann"

    def put(process: Process, slug: str, text: str, **more: Any) -> Any:
        return told(process.ask(9, "note.put", agent="ann", slug=slug, text=text, **more))

    def holds(text: str | None, slug: str = "plan") -> bool:
        path = folder / f"{slug}.md"
        return (path.read_text() if path.exists() else None) == text

    told(one.ask(1, "agent.create", slug="ann"))
    put(one, "plan", "Buy tea.")
    put(one, "list", "Milk.")
    until(lambda: holds("Buy tea.") and holds("Milk.", "list"), "the first texts")
    put(one, "plan", "Buy green tea.")
    until(lambda: holds("Buy green tea."), "the second text")
    (folder / "plan.md").write_text("Buy black tea.")
    until(lambda: "black" in told(one.ask(2, "note.get", agent="ann", slug="plan"))["text"], "it")
    own = tmp_path / "one" / "notes" / "ann" / "plan.md"
    until(lambda: own.read_text() == "Buy black tea.", "the edit")
    two.process.kill()
    two.process.wait()
    (folder / "plan.md").write_text("Buy no tea.")
    changed = put(one, "plan", "Buy white tea.", expected_revision=3)
    plan = one.ask(3, "note.delete", agent="ann", slug="list")["error"]["data"]["plan"]
    told(one.ask(4, "note.delete", agent="ann", slug="list", confirm=plan["plan_hash"]))
    (folder / "mine.md").write_text("A note by hand.")
    two = node("two", settings)
    until(lambda: own.read_text() == "Buy no tea.", "the edit that was made meanwhile")
    until(lambda: holds(None, "list"), "the deletion")
    until((own.parent / "mine.md").exists, "the note that was made by hand")
    history = told(one.ask(5, "doc.history", id=changed["id"]))
    assert [one["actor"] for one in reversed(history)].count("file") == 2, history
    assert [note["slug"] for note in told(two.ask(6, "note.list", agent="ann"))] == ["mine", "plan"]


def reseeded(process: Process) -> Any:
    """Reseeds the stream; the test approves the plan as a person would."""
    refused = process.ask("plan", "cluster.reseed")["error"]["data"]
    assert refused["type"] == "input.confirmation_required", refused
    return told(process.ask("act", "cluster.reseed", confirm=refused["plan"]["plan_hash"]))


def test_a_node_whose_own_log_is_damaged_takes_it_in_anew(tmp_path: Path) -> None:
    """The node reads lost records from the stream; replacing them with others would be a fork."""
    settings = shared().stream()
    one = Session(put_settings(tmp_path / "one", settings), cwd=tmp_path)
    written = [one.data("doc.create", title=f"Paper {n}", text=f"Tea {n}.") for n in range(6)]
    before = one.data("cluster.status")
    one.close()
    [segment] = (tmp_path / "one" / "log").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:3] + lines[4:]))
    done = salvage.repair(tmp_path / "one", FixedHost())
    assert done.aside is not None and done.damage.lost and done.refill
    copy = tmp_path / "one" / done.aside / "log" / segment.name
    assert copy.read_bytes() == b"".join(lines[:3] + lines[4:])
    one = Session(tmp_path / "one", cwd=tmp_path)
    until(lambda: one.data("cluster.status")["seq"] == before["seq"], "what the stream holds")
    assert one.data("cluster.status")["hash"] == before["hash"]
    assert {row["id"] for row in one.data("doc.list")} == {row["id"] for row in written}
    assert one.data("doc.create", title="After", text="Tea.")["id"] == written[-1]["id"] + 1
    assert one.store.log.verify() == before["seq"] + 1
    one.close()


def test_all_servers_are_wiped_and_filled_again_from_one_node(
    node: MakeNode, tmp_path: Path
) -> None:
    """The second node continues by itself; sources that it had not fetched are back."""
    servers = Servers.make(tmp_path / "nats", 3).start()
    try:
        settings = servers.stream()
        one, two = (node(name, settings, doubt_s="5") for name in ("one", "two"))
        written = [told(create(one, number, f"paper {number}")) for number in range(3)]
        assert two.ask(1, "doc.list", min_seq=4)["result"]["meta"]["count"] == 3
        servers.kill()
        for server in servers:
            shutil.rmtree(server.folder / "data")
        servers.start()
        until(lambda: "There is no" in str(told(two.ask(2, "cluster.status"))["problem"]), "damage")
        refilled = reseeded(one)
        assert (refilled["seq"], refilled["published"], refilled["sources"]) == (4, 4, 3)
        until(lambda: told(two.ask(3, "cluster.status"))["connected"], "the other node")
        assert create(two, 4, "after")["result"]["meta"]["seq"] == 5
        assert one.ask(5, "doc.list", min_seq=5)["result"]["meta"]["count"] == 4
        heads = [told(process.ask(6, "cluster.status")) for process in (one, two)]
        assert heads[0]["hash"] == heads[1]["hash"]
        download = told(two.ask(7, "doc.download", id=written[0]["id"]))
        assert b64decode(download["content"]) == b"This is about paper 0 and tea."
        again = told(one.ask(8, "cluster.reseed"))
        assert (again["published"], again["sources"]) == (0, 0), "nothing to approve"
    finally:
        servers.kill()


def test_a_stream_is_refilled_from_a_whole_node(node: MakeNode) -> None:
    settings = shared().stream()
    one = node("one", settings)
    create(one, 1, "kept")
    before = told(one.ask(2, "cluster.status"))
    ask(settings, LogStream.delete)
    refused: list[Any] = []
    until(
        lambda: (
            refused.append(create(one, 3, "refused")["error"]["data"])
            or refused[-1]["type"] == "store.corrupt"
        ),
        "the damage",
    )
    assert refused[-1]["message"] == f"There is no stream {settings.name}. So nothing is written."
    assert told(one.ask(4, "doc.list"))[0]["title"] == "kept"
    assert reseeded(one)["hash"] == before["hash"]
    assert create(one, 7, "again")["result"]["meta"]["seq"] == before["seq"] + 1
    two = node("two", settings)
    assert two.ask(1, "doc.list", min_seq=before["seq"] + 1)["result"]["meta"]["count"] == 2
