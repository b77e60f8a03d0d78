"""Nodes of a cluster embed each text once; workers help, and may be killed at any moment."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import numpy as np
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.connection import using
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.work import messages, node
from kbproc.engine.cluster.work.erasing import erase
from kbproc.engine.cluster.work.messages import NodeNames
from kbproc.engine.cluster.work.offers import KEPT_CHUNKS
from kbproc.engine.cluster.work.worker import ClusterWorker
from kbproc.engine.models.hashing import HashEmbedder
from tests.kit.nats import Servers, shared
from tests.kit.patience import LONG, PATIENCE, until
from tests.kit.shell import Run, in_process, refused
from tests.kit.start import REPO, start
from tests.kit.talk import Session
from tests.kit.workers import asked, messages_in, work_of, worker

OpenNode = Callable[..., Session]
MODEL = HashEmbedder()


class Embedded:
    """Records the texts that the nodes of this process embed; each waits until `go` is set."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.go = threading.Event()
        self.go.set()


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    record, embed = Embedded(), HashEmbedder.embed

    def counted(self: HashEmbedder, text: str) -> Any:
        record.texts.append(text)
        assert record.go.wait(PATIENCE)
        return embed(self, text)

    monkeypatch.setattr(HashEmbedder, "embed", counted)
    yield record
    record.go.set()


class Stopped:
    """Stands in for `time`: a node waits for others until a test moves the clock on."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def write(session: Session, count: int, first: int = 0) -> int:
    """Creates documents of one chunk each; returns the seq of the last one."""
    documents = [
        {"title": f"Paper {n}", "text": f"Tea number {n}."} for n in range(first, first + count)
    ]
    answer = session.ask("doc.create", documents=documents)
    seq: int = answer["result"]["meta"]["seq"]
    return seq


def offer(settings: StreamSettings, texts: list[str]) -> None:
    """Publishes a job like a node does."""

    async def publish(context: JetStreamContext) -> None:
        await messages.make_streams(context, settings)
        job = messages.job(messages.model_of(MODEL), texts)
        await context.publish(NodeNames(settings.stream, MODEL.fingerprint).jobs, job)

    asked(settings, publish)


def made_of(settings: StreamSettings) -> int:
    return messages_in(settings, messages.vectors_stream(settings.stream))


def asked_of_nodes(settings: StreamSettings) -> bool:
    """Returns true if a node answers which model it embeds with."""

    async def use(client: Client) -> None:
        await client.request(messages.model_subject(settings.stream), timeout=PATIENCE)

    try:
        asyncio.run(using(settings.servers[0], None, use))
    except NatsError:
        return False
    return True


# ----------------------------------------------------------------------- shared vectors


def test_a_text_is_embedded_once_in_the_cluster(
    open_node: OpenNode, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "WAITS_S", 1000.0)  # no node gives another one up
    settings = shared().stream()
    one, two = open_node("one", settings), open_node("two", settings)
    write(one, 20)
    two.data("ping", min_seq=write(two, 20, first=100))
    one.data("ping", min_seq=two.store.seq)
    one.embedded(), two.embedded()
    assert len(set(embedded.texts)) == len(embedded.texts) == 40, embedded.texts
    three = open_node("three", settings)
    three.embedded()
    assert len(embedded.texts) == 40, "who joins takes what is there"
    results = [node.data("search", query="tea number 7", limit=50) for node in (one, two, three)]
    assert results[0] == results[1] == results[2] and results[0]["total_matches"] == 40


def test_what_nobody_understands_ends_a_connection_and_not_the_sharing(
    open_node: OpenNode, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "WAITS_S", 1000.0)  # no node gives another one up
    buried, met = node._buried, threading.Event()

    async def odd(context: JetStreamContext, store: str) -> Any:
        if met.is_set():
            return await buried(context, store)
        met.set()
        raise KeyError("state")

    monkeypatch.setattr(node, "_buried", odd)
    settings = shared().stream()
    one = open_node("one", settings)
    write(one, 3)
    assert met.wait(PATIENCE)
    two = open_node("two", settings)
    two.data("ping", min_seq=write(one, 20, first=100))
    one.embedded(), two.embedded()
    assert len(embedded.texts) == 23, "none twice"


ODD = [b"", b"{", b"\xff", b"[" * 100_000, b'{"why":1}', b'"\xff"']


def test_odd_messages_end_no_sharing(
    open_node: OpenNode, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd messages on each subject, the list of failed jobs included, do not stop the nodes."""
    monkeypatch.setattr(node, "WAITS_S", 1000.0)
    monkeypatch.setattr(node, "_COUNTS_S", 0.0)
    settings = shared().stream()
    names = NodeNames(settings.stream, MODEL.fingerprint)

    async def publish(context: JetStreamContext) -> None:
        await messages.make_streams(context, settings)
        for odd in ODD:
            for subject in (messages.dead_subject(settings.stream), names.vectors):
                await context.publish(subject, odd)

    asked(settings, publish)
    one, two = open_node("one", settings), open_node("two", settings)
    two.data("ping", min_seq=write(one, 5))
    one.embedded(), two.embedded()
    assert len(embedded.texts) == 5, "each is embedded once"
    until(partial(has_dead_jobs, one, len(ODD)), "the count")
    for count, odd in enumerate(ODD, len(ODD) + 1):  # cluster.status tells why the last one failed
        asked(settings, partial(bury, settings, odd))
        until(partial(has_dead_jobs, one, count), "the count")
        assert "can't be read" in one.data("cluster.status")["dead_why"]
    findings = one.data("doctor")["findings"]
    (finding,) = [row for row in findings if row["name"] == "workers"]
    assert finding["status"] == "warn"
    assert "jobs are on the list of failed jobs; the last one: The note" in finding["message"]


def has_dead_jobs(session: Session, count: int) -> bool:
    return bool(session.data("cluster.status")["dead_jobs"] == count)


async def bury(settings: StreamSettings, odd: bytes, context: JetStreamContext) -> None:
    await context.publish(messages.dead_subject(settings.stream), odd)


def test_the_first_node_shares_what_it_has(
    open_node: OpenNode, embedded: Embedded, tmp_path: Path
) -> None:
    servers, settings = shared(), shared().settings()
    one = Session(tmp_path / "alone", cwd=tmp_path)
    write(one, 10)
    one.embedded()
    stream_settings = {
        "servers": settings.servers,
        "stream": settings.stream,
        "monitor": settings.monitor,
    }
    one.data("cluster.init", **stream_settings)
    until(lambda: one.library.node.together.facts() and made_of_if_there(settings), "the vectors")
    two = open_node("two", settings)
    two.embedded()
    one.close()
    assert len(embedded.texts) == 10 and len(servers) == 1


def made_of_if_there(settings: StreamSettings) -> int:
    from nats.js.errors import NotFoundError

    try:
        return made_of(settings)
    except NotFoundError:
        return 0


def test_what_is_made_before_there_is_a_stream_is_told_once(
    open_node: OpenNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, embedded = messages.make_streams, threading.Event()

    async def late(context: JetStreamContext, settings: StreamSettings) -> bool:
        await asyncio.to_thread(embedded.wait, PATIENCE)
        return await make(context, settings)

    monkeypatch.setattr(messages, "make_streams", late)
    settings = shared().stream()
    one = open_node("one", settings)
    write(one, 1)
    one.embedded()
    embedded.set()
    until(lambda: made_of_if_there(settings), "the vectors")
    write(one, 1, first=1)
    one.embedded()
    until(lambda: made_of(settings) > 1, "what came after them")
    assert made_of(settings) == 2


def test_a_node_embeds_itself_what_nobody_else_does(
    open_node: OpenNode, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "WAITS_S", 0.2)
    settings = shared().stream()
    two, mute = open_node("two", settings), open_node("mute", settings, "none")
    two.data("ping", min_seq=write(mute, 3))
    two.embedded()
    assert len(embedded.texts) == 3


def test_without_a_server_nobody_is_waited_for(
    open_node: OpenNode, tmp_path: Path, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "WAITS_S", 1000.0)
    servers = Servers.make(tmp_path / "nats").start()
    settings = servers.stream()
    two, mute = open_node("two", settings), open_node("mute", settings, "none")
    facts = two.library.node.status
    until(lambda: made_of_if_there(settings) == 0 and facts(), "it listens")
    two.data("ping", min_seq=write(mute, 3))
    servers.kill()
    two.embedded()
    assert len(embedded.texts) == 3


def test_what_is_erased_leaves_the_cluster(
    open_node: OpenNode, embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Stopped()
    monkeypatch.setattr(node, "time", clock)
    settings = shared().stream()
    one = open_node("one", settings)
    write(one, 1)
    one.embedded()
    until(lambda: made_of(settings) == 1, "the first message")
    write(one, 1, first=1)
    one.embedded()
    until(lambda: made_of(settings) == 2, "the second message")
    pack = one.library.embedding.pack
    assert pack is not None
    erase(settings, [pack.key_at(0), bytes(32)])
    assert made_of(settings) == 1
    two = open_node("two", settings)
    until(lambda: len(two.library.embedding.pack or ()) == 1, "what was not erased")
    assert len(embedded.texts) == 2, "it came from elsewhere"
    clock.now += node.WAITS_IN_ALL_S
    two.embedded()
    assert len(embedded.texts) == 3, "what was erased is made anew"


def test_vectors_of_another_model_or_none_are_passed_over() -> None:
    vectors = {bytes([n]) * 32: np.full(4, n, "<f2").tobytes() for n in range(1, 4)}
    [parcel] = messages.parcels(b"m" * 32, vectors)
    assert messages.unpacked(b"m" * 32, 4, parcel) == vectors
    assert messages.keys_in(parcel) == list(vectors)
    for other in (
        messages.unpacked(b"x" * 32, 4, parcel),
        messages.unpacked(b"m" * 32, 5, parcel),
        messages.unpacked(b"m" * 32, 4, parcel[:-1]),
        messages.unpacked(b"m" * 32, 4, b"m" * 32),
    ):
        assert other == {}


# ------------------------------------------------------------------------------ workers


def test_a_worker_helps_a_node(
    open_node: OpenNode, started: list[Popen[Any]], tmp_path: Path, embedded: Embedded
) -> None:
    """The worker command ends on a signal and prints the number of texts that it embedded."""
    settings = shared().stream()
    embedded.go.clear()
    one = open_node("one", settings)
    write(one, 2 * KEPT_CHUNKS)
    argv = ["-m", "kbproc", "work", *settings.servers, "--stream", settings.stream]
    environment = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    process = start(
        [*argv, "--model", "hash"], cwd=tmp_path, env=environment, stdout=PIPE, stderr=DEVNULL
    )
    started.append(process)
    until(lambda: one.library.embedding.pending_count <= KEPT_CHUNKS + 32, "help")
    assert one.data("cluster.status")["workers"] == 1
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    result = json.loads(process.stdout.read())["data"]
    assert process.wait(PATIENCE) == 0 and result["texts"] >= KEPT_CHUNKS - 32
    until(lambda: work_of(settings) == 0, "no text stays there")
    embedded.go.set()
    one.embedded()
    assert len(embedded.texts) + result["texts"] == 2 * KEPT_CHUNKS


def test_a_job_goes_to_another_when_its_worker_is_killed(
    started: list[Popen[Any]], tmp_path: Path
) -> None:
    settings = shared().stream()
    offer(settings, ["tea", "coffee"])
    started.append(worker(tmp_path, settings, "blocks"))
    assert started[0].stdout is not None and started[0].stdout.readline() == b"taken\n"
    started[0].kill()
    started.append(worker(tmp_path, settings, "0"))
    until(lambda: made_of(settings) == 1, "its vectors")
    until(lambda: work_of(settings) == 0, "its end")


@pytest.mark.skipif(not LONG, reason="the node waits some seconds")
def test_what_a_worker_that_died_had_is_embedded(
    open_node: OpenNode, started: list[Popen[Any]], tmp_path: Path, embedded: Embedded
) -> None:
    """The node embeds the texts of a worker that died, if there is no other worker."""
    settings = shared().stream()
    embedded.go.clear()
    one = open_node("one", settings)
    write(one, 2 * KEPT_CHUNKS)
    started.append(worker(tmp_path, settings, "blocks"))
    assert started[0].stdout is not None and started[0].stdout.readline() == b"taken\n"
    started[0].kill()
    embedded.go.set()
    one.embedded()
    assert len(embedded.texts) == 2 * KEPT_CHUNKS
    until(lambda: work_of(settings) == 0, "no text stays there")


@pytest.mark.skipif(not LONG, reason="there are seconds between two tries")
def test_a_job_that_fails_again_and_again_is_buried(
    open_node: OpenNode, started: list[Popen[Any]], tmp_path: Path
) -> None:
    settings = shared().stream()
    one = open_node("one", settings)
    offer(settings, ["a secret"])
    started.append(worker(tmp_path, settings, "fails"))
    until(lambda: one.data("cluster.status")["dead_jobs"] == 1, "the burial")
    assert one.data("cluster.status")["dead_why"] == "It is out of order."
    assert started[0].stdout is not None
    assert [started[0].stdout.readline() for _ in range(messages.TRIES)] == [b"taken\n"] * 3

    async def last(context: JetStreamContext) -> Any:
        message = await context.get_msg(
            messages.work_stream(settings.stream), subject=messages.dead_subject(settings.stream)
        )
        return json.loads(message.data or b"")

    assert work_of(settings) == 1, "the job is gone, and what is told of it holds no text"
    assert asked(settings, last) == {"texts": 1, "tries": 3, "why": "It is out of order."}


def test_a_worker_with_another_model_is_refused(open_node: OpenNode) -> None:
    settings = shared().stream()
    open_node("one", settings)
    until(lambda: asked_of_nodes(settings), "a node")
    other = ClusterWorker(settings, HashEmbedder(dim=24), parallel=1, tell=lambda line: None)
    with pytest.raises(KbprocError) as caught:
        other.run()
    assert (caught.value.type, caught.value.retryable) == ("model.unavailable", False)
    assert "64 dimensions" in caught.value.message and "24 dimensions" in caught.value.message


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        ([], "servers"),
        (["http://here", "--stream", "a"], "servers"),
        (["nats://a:1"], "--stream"),
        (["nats://a:1", "--stream", "a b"], "--stream"),
        (["nats://a:1", "--stream", "a", "--parallel", "0"], "--parallel"),
    ],
)
def test_what_work_can_not_be_given(
    argv: list[str],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run: Run = in_process(tmp_path, monkeypatch, capsys)
    assert refused(run, "work", *argv)["field"] == field


def test_work_says_that_no_server_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = in_process(tmp_path, monkeypatch, capsys)
    argv = ["work", "nats://127.0.0.1:1", "--stream", "a", "--model", "hash"]
    assert refused(run, *argv)["type"] == "store.io"
