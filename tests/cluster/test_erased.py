"""Erased messages have replacements, the newest of which counts, before their texts go."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from nats.js.errors import NotFoundError

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.jetstream.erasing import erase
from kbproc.engine.cluster.jetstream.purged import ErasedMessages
from kbproc.engine.cluster.jetstream.shelf import ObjectShelf
from kbproc.engine.cluster.jetstream.stream import StoredMessage
from kbproc.engine.cluster.opening import open_shared
from kbproc.engine.cluster.work.command import work
from kbproc.engine.cluster.work.messages import ParseJob, PieceRequest, ResultPiece, TextPiece
from kbproc.engine.cluster.work.reading import WorkerReading
from kbproc.engine.log import record as records
from kbproc.engine.log.record import START, Record, redacted, seal_all
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.sources.parse.worker import ParserJob, decode_answer
from tests.kit.records import draft


class Shelf:
    """Bytes by name, in memory; `creations` counts how often the shelf was made."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.creations = 0

    async def create(self, replicas: int) -> None:
        self.creations += 1

    async def names(self) -> list[str]:
        return sorted(self.objects)

    async def put(self, name: str, data: bytes) -> None:
        self.objects.setdefault(name, data)

    async def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    async def erase(self, name: str) -> None:
        self.objects.pop(name, None)


def on(shelf: Shelf) -> ErasedMessages:
    return ErasedMessages(cast(ObjectShelf, shelf))


def lines(count: int) -> dict[int, bytes]:
    return {seq: b'{"seq":%d,"x":1}' % seq for seq in range(1, count + 1)}


# ----------------------------------------------------------------- replacements


def test_replacements_are_found_by_their_seq_on_every_connection() -> None:
    async def act() -> None:
        shelf = Shelf()
        one, other = on(shelf), on(shelf)
        assert (one.to_seq, await one.line(1), await one.refresh()) == (0, None, {})
        await one.put(lines(2), 5, 3)
        assert (one.to_seq, one.lines) == (5, lines(2))
        assert await other.line(2) == lines(2)[2]
        assert await other.line(9) is None
        await one.put(lines(2), 5, 3)
        assert (shelf.creations, len(shelf.objects)) == (1, 1)

    asyncio.run(act())


def test_only_the_newest_object_counts_and_the_others_are_erased() -> None:
    async def act() -> None:
        shelf = Shelf()
        one = on(shelf)
        await one.put(lines(3), 5, 1)
        await one.put(lines(1), 12, 1)
        assert (one.to_seq, one.lines, len(shelf.objects)) == (12, lines(1), 2)
        await one.tidy()
        assert [name[:13] for name in shelf.objects] == ["000000000012-"]
        shelf.objects.clear()
        assert (await one.refresh(), one.to_seq) == ({}, 0)

    asyncio.run(act())


def test_names_of_a_shelf_are_decoded_and_sorted_and_a_missing_shelf_has_none() -> None:
    bucket: dict[str, int] | None = {
        f"$O.b.M.{urlsafe_b64encode(name.encode()).decode()}": 1 for name in ("z", "Bücher", "a")
    }

    async def stream_info(name: str, subjects_filter: str) -> Any:
        assert (name, subjects_filter) == ("OBJ_b", "$O.b.M.*")
        if bucket is None:
            raise NotFoundError
        return SimpleNamespace(state=SimpleNamespace(subjects=bucket))

    context = SimpleNamespace(stream_info=stream_info)
    client: Any = SimpleNamespace(jetstream=lambda timeout: context)
    shelf = ObjectShelf(client, "b", 1.0)
    assert asyncio.run(shelf.names()) == ["Bücher", "a", "z"]
    bucket = None
    assert asyncio.run(shelf.names()) == []


# ---------------------------------------------------------------------- erasing


class Stream:
    """A stream with these messages, in memory."""

    def __init__(self, messages: dict[int, StoredMessage | None]) -> None:
        self.messages = messages
        self.shelf = Shelf()
        self.purged = on(Shelf())

    async def gaps(self) -> set[int]:
        return {seq for seq, message in self.messages.items() if message is None}

    async def original(self, seq: int) -> StoredMessage | None:
        return self.messages.get(seq)

    async def state(self) -> Any:
        return SimpleNamespace(replicas=1)

    async def erase(self, seq: int) -> None:
        self.messages[seq] = None


class Log:
    """A node's copy of the log."""

    def __init__(self, copies: list[Record]) -> None:
        self.copies = copies
        self.head = copies[-1].position

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> list[Record]:
        return self.copies


@pytest.fixture
def originals() -> list[Record]:
    return seal_all([draft(number) for number in range(1, 4)], START)


def without_text(record: Record) -> Record:
    return redacted(record, events=b"[]", result=b"null")


def test_a_purged_message_gets_its_replacement_before_it_goes(originals: list[Record]) -> None:
    stream = Stream(
        {
            1: StoredMessage(records.encode(originals[0])),
            2: StoredMessage(records.encode(originals[1]), body="long"),
            3: StoredMessage(records.encode(originals[2])),
        }
    )
    stream.shelf.objects = {"long": b"x", "source": b"y", "other": b"z"}
    purged = [without_text(originals[0]), without_text(originals[1]), originals[2]]
    log = Log(purged)

    async def act() -> None:
        for _ in range(2):  # the call can be repeated
            await erase(cast(Any, stream), cast(Any, log), ["source"], 2)

    asyncio.run(act())
    assert [seq for seq, message in stream.messages.items() if message is None] == [1, 2]
    assert stream.shelf.objects == {"other": b"z"}
    assert stream.purged.lines == {
        1: records.encode(purged[0]),
        2: records.encode(purged[1]),
    }
    assert stream.purged.to_seq == 2


def test_a_stream_of_other_records_is_left_alone(originals: list[Record]) -> None:
    others = seal_all([draft(number, 99) for number in range(1, 4)], START)
    stream = Stream({1: StoredMessage(records.encode(others[0]))})
    log = Log([without_text(originals[0])])
    with pytest.raises(KbprocError) as error:
        asyncio.run(erase(cast(Any, stream), cast(Any, log), [], 1))
    assert error.value.type == "store.corrupt"
    assert error.value.message == "The stream does not hold record 1 as this node."
    assert stream.messages[1] is not None


def test_a_later_purge_on_the_shelf_is_not_overwritten_by_an_earlier_one(
    originals: list[Record],
) -> None:
    stream = Stream({1: StoredMessage(records.encode(originals[0]))})
    log = Log([without_text(originals[0])])

    async def act() -> None:
        await stream.purged.put(lines(1), 9, 1)
        await erase(cast(Any, stream), cast(Any, log), [], 5)

    asyncio.run(act())
    assert (stream.purged.to_seq, stream.purged.lines) == (9, lines(1))
    assert stream.messages[1] is not None


# --------------------------------------------------------------- opening, working


def test_a_log_with_settings_that_name_no_stream_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(KbprocError) as error:
        open_shared(tmp_path / "log", settings={"kind": "jetstream", "servers": []})
    assert error.value.type == "store.corrupt"
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("servers", "flags", "field", "message"),
    [
        ([], {}, "servers", "Name the cluster's servers: nats://HOST:PORT of each."),
        (
            ["nats://a:1", "http://b"],
            {},
            "servers",
            "Name the cluster's servers: nats://HOST:PORT of each.",
        ),
        (
            ["nats://a:1"],
            {},
            "--stream",
            "--stream is missing: name the store that the nodes share.",
        ),
        (
            ["tls://a:1"],
            {"--stream": "te am"},
            "--stream",
            "--stream is no valid name: it may have letters, digits and hyphens.",
        ),
        *(
            (
                ["nats://a:1"],
                {"--stream": "team", "--parallel": count},
                "--parallel",
                f"--parallel is '{count}'; it is a number from 1 to 64.",
            )
            for count in ("0", "65", "x", "-1")
        ),
    ],
)
def test_a_worker_needs_servers_a_stream_and_a_number_of_jobs(
    tmp_path: Path, servers: list[str], flags: dict[str, str], field: str, message: str
) -> None:
    with pytest.raises(KbprocError) as error:
        work(servers, flags.get, tmp_path, lambda text: None)
    assert (error.value.type, error.value.field) == ("input.invalid_params", field)
    assert error.value.message == message
    assert error.value.hint == "kbproc work nats://10.0.0.1:4222 --stream team"


class Node:
    """A node that lends a document in pieces, and takes the result; `is_silent` after so many."""

    def __init__(self, data: bytes, most: int = 99) -> None:
        self.data, self.most = data, most
        self.result = b""
        self.requests = 0

    async def request(self, reply: str, data: bytes, *, timeout: float) -> Any:
        self.requests += 1
        answer = b""
        if self.requests <= self.most:
            message = msgspec.msgpack.decode(data, type=PieceRequest | ResultPiece)
            if isinstance(message, PieceRequest):
                part = self.data[message.at : message.at + 10]
                piece = TextPiece(
                    size=len(self.data), data=part, type="text", name="a.txt", title=None
                )
                answer = msgspec.msgpack.encode(piece)
            else:
                self.result += message.data
                answer = b"+"
        return SimpleNamespace(data=answer)


class Pool:
    """Parses a text into nothing, or refuses it."""

    def __init__(self, **more: Any) -> None:
        self.is_closed = False

    def parse(self, jobs: list[ParserJob]) -> list[KbprocError]:
        return [
            KbprocError("input.unsupported_type", f"{len(job.data)} bytes of {job.name}")
            for job in jobs
        ]

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(("most", "has_result"), [(99, True), (0, False), (2, False), (3, False)])
def test_a_worker_gets_a_document_in_pieces_and_sends_the_failure_back(
    monkeypatch: pytest.MonkeyPatch, most: int, has_result: bool
) -> None:
    monkeypatch.setattr("kbproc.engine.sources.parse.pool.ParserPool", Pool)
    node = Node(b"x" * 25, most)

    async def act() -> bool:
        reading = WorkerReading(HashEmbedder(), 1)
        try:
            return await reading.read(cast(Any, node), ParseJob(id="1", reply="r"))
        finally:
            reading.close()

    assert asyncio.run(act()) == has_result
    if has_result:
        answer = decode_answer(node.result)
        assert answer.parsed is None and answer.failure is not None
        assert (answer.failure.type, answer.failure.message) == (
            "input.unsupported_type",
            "25 bytes of a.txt",
        )
