"""Golden transcripts: raw bytes, over real pipes and in memory, all fitting the schemas.

`pytest tests/conversations --snapshot-update` writes them anew: read the difference.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from kbproc.base.errors import ERRORS
from kbproc.calls.schema import all_schemas
from kbproc.methods.registry import registry as all_methods
from tests.conversations.conversations import BASE, CONVERSATIONS, Conversation, make_files
from tests.kit import shell, toys
from tests.kit.fixed import leading
from tests.kit.places import alone_at
from tests.kit.talk import REPO, Message, Process, Session, Transcript, converse, parsed

GOLDEN = REPO / "golden" / "test_golden"
PIPED = [name for name, talk in CONVERSATIONS.items() if talk.registry is None]
IN_MEMORY = [name for name, talk in CONVERSATIONS.items() if talk.in_memory and name in PIPED]
TOYS = [name for name, talk in CONVERSATIONS.items() if talk.registry is not None]

# What no method of this version can meet.
NOT_YET = {
    "llm.unavailable",  # session.ask
}

# What the shell prints beyond one method's answer.
SHELL = {
    "profiles": [
        ["profile", "save", "work", "--store", "kb", "--kb", "papers"],
        ["profile", "list"],
        ["profile", "show", "work"],
        ["kb", "list", "--profile", "wrok"],
        ["profile", "use", "wrok"],
        ["profile", "delete", "work"],
        ["link", "--kb", "default"],
        ["kb", "list", "--jq", ".data[].slug"],
        ["unlink"],
    ],
}


class Transcripts(SingleFileSnapshotExtension):
    """One plain file a conversation, below golden/."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location: Any) -> str:
        return str(REPO / "golden" / Path(test_location.filepath).stem)

    def delete_snapshots(self, *, snapshot_location: str, snapshot_names: set[str]) -> None:
        """Never: a conversation that fails on its way is not one that is gone."""


@pytest.fixture
def transcripts(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Transcripts)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The same path on every machine, and one run at a time in it."""
    with alone_at(BASE / request.node.callspec.params["name"]) as path:
        make_files(path)
        yield path
    with suppress(OSError):  # other conversations are there
        BASE.rmdir()


def over_pipes(talk: Conversation, folder: Path) -> Transcript:
    with talk.around(folder) as more:
        options = {**talk.options, **(more or {})}
        peer = Process(folder / "store", cwd=folder, model=talk.model, **options)
        transcript = converse(peer, talk.script, talk.parked)
        code = peer.stop()
    transcript.lines.append(f"exit {code}".encode())
    assert code == talk.exit
    assert_log_lines(peer.told())
    return transcript


def in_memory(talk: Conversation, folder: Path) -> Transcript:
    with talk.around(folder) as more, leading(**more or {}):
        peer = Session(
            folder / "store", cwd=folder, model=talk.model, registry=talk.registry, **talk.options
        )
        transcript = converse(peer, talk.script, talk.parked)
    transcript.lines.append(b"exit 0")
    return transcript


def assert_log_lines(told: str) -> None:
    """stderr holds log lines and no trace of a crash."""
    for line in told.splitlines():
        assert list(json.loads(line))[:3] == ["ts", "level", "msg"]
    assert "Traceback" not in told


@pytest.mark.parametrize("name", PIPED)
def test_over_pipes(name: str, folder: Path, transcripts: SnapshotAssertion) -> None:
    got = over_pipes(CONVERSATIONS[name], folder)
    check(got, SCHEMAS)
    assert got.text() == transcripts


@pytest.mark.parametrize("name", IN_MEMORY)
def test_in_memory(name: str, folder: Path) -> None:
    got = in_memory(CONVERSATIONS[name], folder)
    assert got.text() == golden(f"test_over_pipes[{name}]")


@pytest.mark.parametrize("name", TOYS)
def test_toys(name: str, folder: Path, transcripts: SnapshotAssertion) -> None:
    got = in_memory(CONVERSATIONS[name], folder)
    check(got, all_schemas(toys.registry().methods.values()))
    assert got.text() == transcripts


@pytest.mark.parametrize("name", SHELL)
def test_shell(
    name: str,
    folder: Path,
    transcripts: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, told = shell.in_process(folder, monkeypatch, capsys), []
    for argv in SHELL[name]:
        code, out, err = run(*argv)
        told += [" ".join(["$ kbproc", *argv]), *(f"1 {line}" for line in out.splitlines())]
        told += [*(f"2 {line}" for line in err.splitlines()), f"exit {code}"]
    assert "\n".join([*told, ""]) == transcripts


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()


# ----------------------------------------------------------------------- the schemas

SCHEMAS = all_schemas(all_methods().methods.values())


def closed(schema: Any) -> Any:
    """Open to clients, closed to us: a member that no schema names is an error here."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


@functools.cache
def _validator(schema: str) -> Draft202012Validator:
    parsed = json.loads(schema)
    Draft202012Validator.check_schema(parsed)
    return Draft202012Validator(closed(parsed))


def fit(value: Any, schema: dict[str, Any]) -> None:
    _validator(json.dumps(schema)).validate(value)


def check(transcript: Transcript, schemas: dict[str, dict[str, Any]]) -> None:
    """Every received line fits its schema, and every stream's index has no gap."""
    methods = dict(_asked(transcript))
    indexes: dict[Any, int] = {}
    for message in messages(transcript.received):
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert list(message) == ["jsonrpc", "method", "params"]
            params = message["params"]
            fit(params, schemas[f"event.{params['type']}"])
            if "request_id" in params:
                assert params["index"] == indexes.setdefault(params["request_id"], 0)
                assert (params["type"] == "init") == (params["index"] == 0)
                indexes[params["request_id"]] += 1
        elif "error" in message:
            assert list(message) == ["jsonrpc", "id", "error"]
            fit(message["error"], schemas["error"])
            indexes.pop(message["id"], None)
        else:
            assert list(message) == ["jsonrpc", "id", "result"]
            fit(message["result"], schemas[f"{methods[message['id']]}.result"])
            indexes.pop(message["id"], None)


def messages(lines: list[bytes]) -> Iterator[Message]:
    for line in lines:
        message = json.loads(line)
        yield from message if isinstance(message, list) else [message]


def _asked(transcript: Transcript) -> Iterator[tuple[Any, str]]:
    for line in transcript.sent:
        sent = parsed(line)
        for message in sent if isinstance(sent, list) else [sent]:
            if isinstance(message, dict) and isinstance(message.get("id"), str | int):
                yield message["id"], message.get("method", "")


# ------------------------------------------------------------------ what is covered


def _received() -> Iterator[Message]:
    for path in GOLDEN.iterdir():
        lines = [line[2:].encode() for line in path.read_text().splitlines() if line[:2] == "< "]
        yield from messages(lines)


def _told_by_shell() -> Iterator[str]:
    """What stood on stderr."""
    for name in SHELL:
        for line in golden(f"test_shell[{name}]").splitlines():
            if line.startswith("2 {"):
                yield line[2:]


def test_every_method_answers_in_a_golden() -> None:
    answered = {
        message["result"]["meta"]["schema"].removesuffix("/1")
        for message in _received()
        if "result" in message
    }
    ending = {name for name, method in all_methods().methods.items() if method.result is not None}
    assert ending - answered == set()


def test_every_error_type_is_in_a_golden() -> None:
    emitted = {message["error"]["data"]["type"] for message in _received() if "error" in message}
    emitted |= {json.loads(line)["error"]["type"] for line in _told_by_shell()}
    assert set(ERRORS) - emitted == NOT_YET


def test_no_stray_files() -> None:
    wanted = {f"test_over_pipes[{name}].txt" for name in PIPED}
    wanted |= {f"test_toys[{name}].txt" for name in TOYS}
    wanted |= {f"test_shell[{name}].txt" for name in SHELL}
    assert {path.name for path in GOLDEN.iterdir()} == wanted
    assert [path.name for path in GOLDEN.parent.iterdir() if path.is_file()] == []
