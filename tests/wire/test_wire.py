"""The wire withstands any bytes, and clients that do not read or that leave."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.settings.config import SCOPES, Config
from kbproc.base.suggest import nearest
from kbproc.methods.all import registry
from kbproc.methods.calls import retry, schemas
from kbproc.methods.calls.checker import Checker
from kbproc.surfaces.sharing.serve import Serving, first_line
from kbproc.surfaces.wire.connection import WORKERS, Connection, serve_lines
from kbproc.surfaces.wire.lines import InputLines, Signals
from kbproc.surfaces.wire.outbox import Outbox
from tests.conftest import OpenSession
from tests.kit import toys
from tests.kit.patience import PATIENCE, until
from tests.kit.schemas import fit
from tests.kit.talk import (
    Message,
    Process,
    Session,
    as_bytes,
    assert_log_lines,
    cancel,
    parsed,
    request,
)

ERROR = schemas.error_schema()
PING = {"jsonrpc": "2.0", "id": "next", "method": "ping"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One session for tests that leave nothing behind."""
    folder = tmp_path_factory.mktemp("wire")
    session = Session(folder / "store", cwd=folder)
    session.receive(), session.receive()
    yield session
    session.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "store", cwd=tmp_path).ready()
    yield process
    process.stop()
    assert_log_lines(process.told())


def answer_to(session: Session, line: bytes) -> list[Message]:
    """Sends a line and a ping; returns the answers to the line."""
    session.send(line)
    session.send(as_bytes(PING))
    session.idle()
    answers = [json.loads(answer) for answer in session.outbox.rest()]
    (pong,) = [a for a in answers if isinstance(a, dict) and a.get("id") == "next"]
    assert "result" in pong
    answers.remove(pong)
    return [answer for answer in answers if "method" not in answer]


# --------------------------------------------------------------------------- bytes

DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100_000
BAD_LINES: dict[str, tuple[bytes, str, str | None]] = {
    "no JSON": (b"nonsense", "input.invalid_json", None),
    "a torn object": (b'{"jsonrpc":"2.0","id":1', "input.invalid_json", None),
    "a torn batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"},', "input.invalid_json", None),
    "two values": (as_bytes(PING) + b" 1", "input.invalid_json", None),
    "a byte order mark": (b"\xef\xbb\xbf" + as_bytes(PING), "input.invalid_json", None),
    "UTF-16": (as_bytes(PING).decode().encode("utf-16"), "input.invalid_json", None),
    "NaN": (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', "input.invalid_json", None),
    "a bare control character": (
        b'{"jsonrpc":"2.0","id":1,"method":"pi\tng"}',
        "input.invalid_json",
        None,
    ),
    "half a surrogate pair": (
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
        "input.unknown_method",
        "$.method",
    ),
    "bytes that are no UTF-8": (
        b'{"jsonrpc":"2.0","id":1,"method":"search","params":{"query":"\xff\xfe"}}',
        "input.invalid_json",
        "$.params",
    ),
    "many brackets": (b"[" * 100_000, "input.invalid_json", None),
    "many closed brackets": (b"[" * 100_000 + b"]" * 100_000, "input.invalid_json", None),
    "many braces": (b'{"a":' * 100_000, "input.invalid_json", None),
    "deep params": (DEEP + b"]" * 100_000 + b"}}", "input.invalid_json", None),
    "a huge integer": (
        b'{"jsonrpc":"2.0","id":1,"method":"search","params":{"query":"x","limit":'
        + b"9" * 4000
        + b"}}",
        "input.invalid_params",
        "$.params.limit",
    ),
    "a huge float": (
        b'{"jsonrpc":"2.0","id":1,"method":"search","params":{"query":"x","min_score":1e999}}',
        "input.invalid_params",
        "$.params.min_score",
    ),
    "a long id": (
        as_bytes(request("x" * 257, "ping")),
        "input.invalid_request",
        "$.id",
    ),
    "a long id, and more": (
        as_bytes({**request("x" * 257, "ping"), "more": 1}),
        "input.invalid_request",
        "$.id",
    ),
    "a long method": (as_bytes(request(1, "x" * 100_000)), "input.unknown_method", "$.method"),
    "a long member": (
        as_bytes({**request(1, "ping"), "x" * 100_000: 1}),
        "input.invalid_request",
        f"$.{'x' * 100}…",
    ),
    "a long parameter": (
        as_bytes(request(1, "ping", **{"x" * 100_000: 1})),
        "input.invalid_params",
        f"$.params.{'x' * 100}",
    ),
    "a long choice": (
        as_bytes(request(1, "search", query="x", mode="y" * 100_000)),
        "input.invalid_params",
        "$.params.mode",
    ),
    "a long batch": (as_bytes([1] * 1001), "input.too_large", None),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_gets_one_short_typed_answer(name: str, shared: Session) -> None:
    line, type, field = BAD_LINES[name]
    (answer,) = answer_to(shared, line)
    fit(answer["error"], ERROR)
    assert answer["error"]["data"]["type"] == type
    assert answer["error"]["data"].get("field") == field
    assert len(json.dumps(answer)) < 4000


@pytest.mark.parametrize(
    ("levels", "type", "id"),
    [(512, "input.invalid_params", 1), (513, "input.invalid_json", None)],
)
def test_a_line_that_is_too_deep_is_no_json_and_has_no_id(
    levels: int, type: str, id: int | None, shared: Session
) -> None:
    params = b'{"x":%s%s}' % (b"[" * (levels - 2), b"]" * (levels - 2))
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":%s}' % params
    (answer,) = answer_to(shared, line)
    assert (answer["error"]["data"]["type"], answer["id"]) == (type, id)


def test_blank_lines_are_passed_over(shared: Session) -> None:
    for line in (b"", b" ", b"\r", b"\t \r"):
        assert answer_to(shared, line) == []


def test_a_carriage_return_at_the_end_is_white_space(shared: Session) -> None:
    (answer,) = answer_to(shared, as_bytes(request(1, "ping")) + b"\r")
    assert answer["result"]["data"]["seq"] == 1


def test_bad_lines_over_pipes(process: Process) -> None:
    for number, (line, _, _) in enumerate(BAD_LINES.values()):
        process.send(line)
        assert "error" in process.message()
        assert "result" in process.ask(number, "ping")


def test_lines_over_the_limit_are_skipped(tmp_path: Path) -> None:
    """A line of exactly the limit is accepted, a longer one is not; the next line is unharmed."""
    process = Process(tmp_path / "store", cwd=tmp_path, max_line_bytes=100_000).ready()
    fits = as_bytes(request(1, "ping")).ljust(100_000)
    for line in (fits, fits + b" ", b"x" * 1_000_000, b"[" * 300_000, fits):
        process.send(line)
        message = process.message()
        if line == fits:
            assert message["id"] == 1 and "result" in message
        else:
            assert message["error"]["data"]["type"] == "input.too_large"
    process.stdin.write(b"y" * 200_000)  # a line that never ends
    process.stdin.flush()
    (last,) = process.close()
    assert json.loads(last)["error"]["data"]["type"] == "input.too_large"
    assert process.stop() == 0


def test_the_last_line_needs_no_newline(process: Process) -> None:
    process.stdin.write(as_bytes(request(1, "ping")))
    process.stdin.flush()
    (last,) = process.close()
    assert json.loads(last)["id"] == 1


def test_no_answer_exceeds_the_limit(open_session: OpenSession) -> None:
    """Errors replace the longest answers of a batch."""
    session = open_session(max_line_bytes=3500)
    session.data("doc.create", title="Long", text="long " * 500)
    whole = request("whole", "doc.get", id=1, text=True)
    part = request("part", "doc.get", id=1, text=True, length=100)
    session.send(as_bytes([whole, part, request("ping", "ping")]))
    line = session.receive()
    assert len(line) <= 3500
    first, second, third = json.loads(line)
    assert first["id"] == "whole" and first["error"]["data"]["type"] == "input.too_large"
    assert second["id"] == "part" and len(second["result"]["data"]["text"]) == 100
    assert third["id"] == "ping" and "result" in third


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
METHODS = ["ping", "search", "doc.list", "doc.get", "kb.get", "status", "no.such", "$/cancel"]
near_requests = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | json_values, "method": st.sampled_from(METHODS) | json_values},
    optional={
        "id": st.integers() | st.text(max_size=5) | json_values,
        "params": st.dictionaries(
            st.sampled_from(["query", "limit", "id", "slug", "mode", "kb", "tags"])
            | st.text(max_size=5),
            json_values,
            max_size=3,
        )
        | json_values,
        "more": json_values,
    },
)
lines = (
    st.binary(max_size=200).map(lambda data: data.replace(b"\n", b" "))
    | json_values.map(lambda value: json.dumps(value).encode())
    | near_requests.map(lambda value: json.dumps(value).encode())
    | st.lists(near_requests, max_size=3).map(lambda value: json.dumps(value).encode())
)


@given(line=lines)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_line_gets_one_answer_or_none(line: bytes, shared: Session) -> None:
    answers = answer_to(shared, line.replace(b'"next"', b'"last"'))
    assert len(answers) <= 1
    for answer in answers:
        for part in answer if isinstance(answer, list) else [answer]:
            assert part["jsonrpc"] == "2.0" and set(part) <= {"jsonrpc", "id", "result", "error"}
            if "error" in part:
                fit(part["error"], ERROR)
                assert part["error"]["data"]["type"] != "internal.error"
            else:
                assert part["id"] is not None
    message = parsed(line)
    if isinstance(message, dict) and isinstance(message.get("id"), str):
        assert [a["id"] for a in answers] in ([message["id"].replace("next", "last")], [None])


# ----------------------------------------------------------------- requests in flight


def test_ids_come_back_as_they_were_sent(shared: Session) -> None:
    for id in ("", "a", "7", "ü\n", 0, -1, 2**63, -(2**70), "x" * 256):
        (answer,) = answer_to(shared, as_bytes(request(id, "ping")))
        assert answer["id"] == id and type(answer["id"]) is type(id)


def test_an_id_in_flight_is_refused_and_free_afterwards(shared: Session) -> None:
    waiting = request(1, "ping", min_seq=999)
    shared.send(as_bytes(waiting))
    shared.send(as_bytes(request(1, "ping")))
    refused = json.loads(shared.receive())
    assert refused["error"]["data"]["field"] == "$.id"
    shared.send(as_bytes(cancel(1)))
    assert json.loads(shared.receive())["error"]["data"]["type"] == "operation.cancelled"
    (answer,) = answer_to(shared, as_bytes(request(1, "ping")))
    assert "result" in answer


def test_a_failure_that_can_not_be_told_is_answered(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread survives, because all writes depend on it."""

    def broken(*_: Any) -> None:
        raise ValueError("not enough values to unpack")

    session = open_session()
    with monkeypatch.context() as patch:
        patch.setattr(retry, "with_retry", broken)
        for method in ("kb.get", "kb.create", "doctor"):
            assert session.error(method, x=1)["type"] == "internal.error"
    assert session.data("kb.create", slug="next")["slug"] == "next"


def test_waiting_requests_take_no_place(open_session: OpenSession) -> None:
    session = open_session(max_in_flight=2)
    session.receive(), session.receive()
    for id in range(50):
        session.send(as_bytes(request(id, "ping", min_seq=2)))
        until(lambda: session.connection.waiting > id, "it to wait")  # noqa: B023  now
    session.send(as_bytes(request("wake", "kb.create", slug="wakes-them")))
    session.idle()
    answers = [json.loads(line) for line in session.outbox.rest()]
    assert sorted(a["id"] for a in answers if a["id"] != "wake") == list(range(50))
    assert all("result" in a for a in answers)


def test_one_more_than_the_limit_is_overloaded(open_session: OpenSession) -> None:
    """The test holds the lane, so that writes queue."""
    session = open_session(max_in_flight=3)
    session.receive(), session.receive()
    with session.store.lane():
        for id in range(5):
            session.send(as_bytes(request(id, "kb.create", slug=f"kb-{id}")))
        refused = [json.loads(session.receive()) for _ in range(2)]
    assert [(r["id"], r["error"]["data"]["type"]) for r in refused] == [
        (3, "server.overloaded"),
        (4, "server.overloaded"),
    ]
    assert all(r["error"]["data"]["retryable"] is True for r in refused)
    assert [json.loads(session.receive())["id"] for _ in range(3)] == [0, 1, 2]
    assert "result" in session.ask("ping")


def test_notifications_are_limited_too(open_session: OpenSession) -> None:
    session = open_session(max_in_flight=3)
    session.receive(), session.receive()
    with session.store.lane():
        for number in range(5):
            note = {"jsonrpc": "2.0", "method": "kb.create", "params": {"slug": f"kb-{number}"}}
            session.send(as_bytes(note))
    session.idle()
    assert [kb["slug"] for kb in session.data("kb.list")] == ["default", "kb-0", "kb-1", "kb-2"]


def test_answers_come_out_of_order(open_session: OpenSession) -> None:
    """A read does not wait for a write, and short writes keep their order."""
    session = open_session()
    session.receive(), session.receive()
    with session.store.lane():
        session.send(as_bytes(request("write", "kb.create", slug="first")))
        session.send(as_bytes(request("write too", "kb.create", slug="second")))
        session.send(as_bytes(request("read", "ping")))
        assert json.loads(session.receive())["id"] == "read"
    assert [json.loads(session.receive())["id"] for _ in range(2)] == ["write", "write too"]


def test_a_queued_write_can_be_cancelled(open_session: OpenSession) -> None:
    session = open_session()
    session.receive(), session.receive()
    with session.store.lane():
        session.send(as_bytes(request(1, "kb.create", slug="kept")))
        session.send(as_bytes(request(2, "kb.create", slug="dropped")))
        session.send(as_bytes(cancel(2)))
    answers = {m["id"]: m for m in (json.loads(session.receive()) for _ in range(2))}
    assert "result" in answers[1]
    assert answers[2]["error"]["data"]["type"] == "operation.cancelled"
    assert len(session.data("kb.list")) == 2


# ---------------------------------------------------------------------- the first line


def test_the_first_line_fits_its_schema(tmp_path: Path) -> None:
    config = Config(store=tmp_path, cache=tmp_path)
    message = json.loads(first_line(Serving(config=config), SCOPES, Host()))
    assert Checker().event("init", message["params"]) is None
    assert message["params"]["scopes"] == list(SCOPES)


def test_the_protocol_that_the_first_line_names_can_be_asked_for(tmp_path: Path) -> None:
    config = Config(store=tmp_path, cache=tmp_path)
    line = json.loads(first_line(Serving(config=config, protocol="1"), SCOPES, Host()))
    again = Serving(config=config, protocol=line["params"]["protocol"])
    again.check()
    with pytest.raises(KbprocError, match="not spoken"):
        Serving(config=config, protocol="1.1").check()


def test_scopes_are_those_that_methods_need() -> None:
    by_handlers = {"knowledge:write_others"}  # lets who has it supersede others' entries
    needed = {
        scope
        for each in registry().methods.values()
        for scope in (each.scope, each.own_scope, each.also_needs)
        if scope is not None
    }
    assert sorted(needed | by_handlers) == list(SCOPES)


def test_the_first_line_needs_no_method_and_no_checker() -> None:
    """Each of these modules would delay the first line."""
    code = (
        "import sys\n"
        "from kbproc.surfaces.shell import arguments, cli\n"
        "from kbproc.surfaces.sharing import serve\n"
        "slow = {'methods.calls.method', 'methods.calls.run', 'methods.all'}\n"
        "slow |= {'engine.store.pipeline', 'engine.store.store', 'surfaces.wire.connection'}\n"
        "slow |= {'surfaces.wire.messages', 'methods.calls.checker', 'methods.calls.schemas'}\n"
        "slow = {f'kbproc.{name}' for name in slow} | {'logging', 'difflib', 'secrets'}\n"
        "print(sorted(slow & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_wire_blocks_whatever_it_was_given(tmp_path: Path) -> None:
    """A non-blocking pipe would end the process as soon as it is full."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = (
        "import os\n"
        "from kbproc.base.pipes import claim\n"
        "print([os.get_blocking(fd) for fd in claim()])\n"
    )
    with (tmp_path / "told").open("w+") as errors:
        subprocess.run(
            [sys.executable, "-c", code], stdin=reader, stdout=writer, stderr=errors, check=True
        )
        os.close(reader)
        os.close(writer)
        errors.seek(0)
        assert errors.read() == "[True, True]\n"


def test_a_long_name_is_compared_in_no_time() -> None:
    valid = ["doc.get", "doc.list", "x" * 100]
    assert nearest("doc.gett" + "x" * 10_000_000, valid) == ["x" * 100]


# -------------------------------------------------------------------------- the reader


class Pipe:
    """An outbox on a pipe that is read only on demand."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.outbox = Outbox(self.writer)

    def close(self) -> None:
        os.close(self.reader)
        self.outbox.close()
        os.close(self.writer)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not say what a pipe takes")
def test_what_an_empty_pipe_takes_is_there_at_once(pipe: Pipe) -> None:
    """The sender writes directly, because waking another thread would take time."""
    pipe.outbox.send(b"x" * 30_000)
    os.set_blocking(pipe.reader, False)
    assert os.read(pipe.reader, 1 << 16) == b"x" * 30_000 + b"\n"
    half = fcntl.fcntl(pipe.writer, fcntl.F_GETPIPE_SZ) // 2
    pipe.outbox.send(b"y" * (half - 1))
    assert os.read(pipe.reader, half) == b"y" * (half - 1) + b"\n"


@pytest.mark.parametrize("sizes", [[200_000], [1, 65_535], [30_000] * 9, [70_000, 1, 4095, 4096]])
def test_whoever_answers_never_waits_for_the_reader(pipe: Pipe, sizes: list[int]) -> None:
    lines = [b"%d" % (i % 10) * size for i, size in enumerate(sizes)]
    for line in lines:
        pipe.outbox.send(line)
    with os.fdopen(os.dup(pipe.reader), "rb") as reader:
        assert [reader.readline() for _ in lines] == [line + b"\n" for line in lines]
    assert pipe.outbox.flush(PATIENCE)


def test_who_does_not_read_stops_only_its_streams(open_session: OpenSession, pipe: Pipe) -> None:
    session = open_session(registry=toys.registry(), max_in_flight=4)
    deaf = Connection(session.service, session.connection.peer, pipe.outbox)
    for id in range(4):
        deaf.receive(as_bytes(request(id, "flood")))
    until(lambda: pipe.outbox.congested, "an outbox that is congested")
    session.receive(), session.receive()
    assert "result" in session.ask("subtract", minuend=2, subtrahend=1)
    assert "result" in session.ask("emit")  # a stream of another connection
    deaf.receive(as_bytes(cancel(0)))  # the blocked stream can be cancelled
    deaf.end(0.2)
    assert deaf.wait_until_idle(PATIENCE)


def test_a_stream_that_waits_holds_nobody_up(open_session: OpenSession, pipe: Pipe) -> None:
    """All streams share one thread: a client that does not read holds up no other stream."""
    session = open_session(registry=toys.registry())
    session.receive(), session.receive()
    deaf = Connection(session.service, session.connection.peer, pipe.outbox)
    deaf.receive(as_bytes(request(0, "follow")))
    until(lambda: pipe.outbox.congested, "an outbox that is congested")
    session.send(as_bytes(request(0, "follow")))
    types = [json.loads(session.receive())["params"]["type"] for _ in range(1 + toys.PART)]
    assert types == ["init", *["item"] * toys.PART]
    deaf.end(0.2)
    assert deaf.wait_until_idle(PATIENCE)


def test_nothing_is_lost_for_a_slow_reader(process: Process) -> None:
    """The client requests far more than a pipe holds before it reads the first answer."""
    requests = [as_bytes(request(id, "describe", full=True)) for id in range(4)]
    process.stdin.write(b"\n".join(requests) + b"\n")
    process.stdin.flush()
    process.stdin.close()
    answers = [json.loads(line) for line in process.stdout]
    assert sorted(a["id"] for a in answers) == list(range(4))
    assert all("result" in a for a in answers)


def test_lines_end_with_a_client_that_left_answers_unread() -> None:
    """The socket then raises an error; lines that the client sent before still count."""
    ours, client = socket.socketpair()
    client.sendall(b"asked\n")
    lines = iter(InputLines(ours.fileno(), 1000, Signals()))
    assert next(lines) == b"asked"
    ours.sendall(b"unread")
    client.close()
    assert list(lines) == []
    ours.close()


def test_reading_stops_while_nothing_is_read(open_session: OpenSession, pipe: Pipe) -> None:
    """Memory stays bounded: further requests stay in the pipe until the outbox has room."""
    session = open_session(registry=toys.registry())
    deaf = Connection(session.service, session.connection.peer, pipe.outbox)
    reader, writer = os.pipe()
    codes: list[int] = []
    lines = InputLines(reader, 1000, Signals())
    serving = threading.Thread(target=lambda: codes.append(serve_lines(deaf, lines)), daemon=True)
    serving.start()
    count = 200
    for id in range(count):
        os.write(writer, as_bytes(request(id, "blob")) + b"\n")
    until(lambda: pipe.outbox.full, "an outbox that is full")
    assert deaf.wait_until_idle(PATIENCE)
    # Requests in flight may still answer, and an answer frees its place just before it is queued.
    assert pipe.outbox.held[1] < (32 + 64 + WORKERS + 1) << 20
    os.close(writer)  # not earlier, because a closed input is never held back
    with os.fdopen(os.dup(pipe.reader), "rb") as answers:
        ids = [json.loads(answers.readline())["id"] for _ in range(count)]
    serving.join(PATIENCE)
    os.close(reader)
    assert codes == [0] and sorted(ids) == list(range(count))


def test_who_leaves_without_reading_ends_it(tmp_path: Path) -> None:
    process = Process(tmp_path / "store", cwd=tmp_path).ready()
    for id in range(5):
        process.send(as_bytes(request(id, "describe", full=True)))
    process.stdout.close()
    process.stdin.close()
    assert process.process.wait(PATIENCE) == 0
    process.stop()
    assert_log_lines(process.told())


# ------------------------------------------------------------------------- the ending


def workers_of(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.process.pid).children(recursive=True)


def busy(process: Process, tmp_path: Path) -> list[psutil.Process]:
    """Gives the process parsers, a wait, and requests in flight; returns its children."""
    (tmp_path / "notes.md").write_text("# Notes\n\nSomething to read.\n")
    assert "result" in process.ask(1, "doc.ingest", paths=["notes.md"])
    process.send(as_bytes(request(2, "ping", min_seq=999)))
    process.send(as_bytes({"jsonrpc": "2.0", "method": "ping", "params": {"min_seq": 999}}))
    assert "result" in process.ask(3, "ping")  # so the lines before have been read
    children = workers_of(process)
    assert children
    return children


@pytest.mark.parametrize(
    ("how", "code"), [("eof", 0), (signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_the_end(how: Any, code: int, process: Process, tmp_path: Path) -> None:
    """Waits end at once, the exit code is right, and no child process remains."""
    children = busy(process, tmp_path)
    if how == "eof":
        process.stdin.close()
    else:
        process.process.send_signal(how)
    rest = [json.loads(line) for line in process.stdout]
    assert process.process.wait(PATIENCE) == code
    if how != signal.SIGKILL:
        assert [(m["id"], m["error"]["data"]["type"]) for m in rest] == [(2, "operation.cancelled")]
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not alive


def test_signals_in_a_row(process: Process) -> None:
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        process.process.send_signal(signum)
    assert process.process.wait(PATIENCE) in {0, 130}


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("path", ["", "store.toml", "log", "views", "views/fulltext"])
def test_a_signal_while_starting(path: str, tmp_path: Path) -> None:
    """The signal comes as soon as this part of a new store exists."""
    process = Process(tmp_path / "store", cwd=tmp_path)
    assert process.message()["params"]["type"] == "init"
    until((tmp_path / "store" / path).exists, f"{path} of the store")
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(PATIENCE) == 0
    process.stop()
    assert_log_lines(process.told())


@pytest.mark.usefixtures("executed")
def test_everything_asked_before_the_end_is_answered(tmp_path: Path) -> None:
    """This includes lines sent before the store is open, and notifications."""
    process = Process(tmp_path / "store", cwd=tmp_path)
    for id in range(30):
        process.send(as_bytes(request(id, "ping" if id % 10 else "describe")))
    note = {"jsonrpc": "2.0", "method": "kb.create", "params": {"slug": "by-notification"}}
    process.send(as_bytes(note))
    answers = [json.loads(line) for line in process.close()]
    assert sorted(a["id"] for a in answers if "id" in a) == list(range(30))
    assert process.stop() == 0
    again = Process(tmp_path / "store", cwd=tmp_path).ready()
    slugs = [kb["slug"] for kb in again.ask(1, "kb.list")["result"]["data"]]
    again.stop(signal.SIGTERM)
    assert slugs == ["by-notification", "default"]


# ------------------------------------------------------------------- stdout and stderr

PRINTING = """
import os, sys
from kbproc.base.pipes import claim
pipes = claim()
print("a stray print", flush=True)
os.write(1, b"another\\n")
os.system("echo of a child")
from kbproc.base import pipes as pipes_module
from kbproc.surfaces.sharing import owner, serve
from tests.kit import toys
owner.all_methods = toys.registry
sys.argv = ["fixed", *sys.argv[1:]]
import tests.kit.fixed as fixed
fixed.claim = lambda: pipes
pipes_module.leave(fixed.main())
"""


@pytest.mark.usefixtures("executed")
def test_stray_prints_do_not_reach_the_wire(tmp_path: Path) -> None:
    process = Process(tmp_path / "store", cwd=tmp_path, program=PRINTING).ready()
    assert process.ask(1, "print")["result"]["data"] == 0  # and stdin reads as empty
    assert process.ask(2, "raise")["error"]["data"]["type"] == "internal.error"
    assert process.close() == []
    assert process.stop() == 0
    output = process.told()
    for stray in ("a stray print", "another", "and a third", "of a child"):
        assert stray in output
    logged = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [entry["level"] for entry in logged] == ["error"]
    assert "a secret that stays on stderr" in logged[0]["msg"]


def test_equal_log_lines_are_told_once(tmp_path: Path) -> None:
    process = Process(tmp_path / "store", cwd=tmp_path, program=PRINTING).ready()
    for id in range(5):
        process.ask(id, "raise")
    process.close()
    process.stop()
    logged = [json.loads(line) for line in process.told().splitlines() if line.startswith("{")]
    assert [entry.get("repeated") for entry in logged] == [None, 4]
