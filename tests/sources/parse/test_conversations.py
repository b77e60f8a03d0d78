"""Conversations: each client's shape is known by its content and becomes the same turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from kbproc.base.text.secrets import REDACTED
from kbproc.engine.sources.chunk import count_words
from kbproc.engine.sources.parse import worker
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.chats.turns import ChatTranscript, encoded, finished
from kbproc.engine.sources.parse.formats import TAIL_BYTES, ReadOptions, detect, parse
from kbproc.engine.sources.parse.worker import ParsedChunks, ParserJob, Setup
from tests.kit import chats
from tests.kit.golden import Transcripts
from tests.kit.zips import zipped

SESSIONS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "claude-code": ("a.jsonl", chats.claude_code),
    "codex": ("rollout-1.jsonl", chats.codex),
    "gemini-cli": ("session-1.json", chats.gemini),
    "gemini-cli lines": ("session-1.jsonl", chats.gemini_lines),
    "opencode": ("export.json", chats.opencode_export),
    "pi": ("a.jsonl", chats.pi),
}
EXPORTS = {"chatgpt": chats.chatgpt, "claude": chats.claude}


def read(name: str, data: bytes) -> Parsed:
    assert detect(name, data[:4096], tail=data[-TAIL_BYTES:]) == "conversation"
    return parse(data, "conversation", name)


def only_part(parsed: Parsed) -> Parsed:
    [part] = parsed.parts
    return read(part.name, part.data)


def check_turns(parsed: Parsed, client: str) -> None:
    """The same two turns, with the tool's call and output in the first."""
    sections = list(dict.fromkeys(block.section for block in parsed.blocks))
    assert sections == ["2026-03-05 > turn 1, 14:03", "2026-03-06 > turn 2, 09:00"]
    first = [block.text for block in parsed.blocks if block.section == sections[0]]
    assert first[0] == f"User: {chats.QUESTION}"
    assert first[1].endswith(f": {chats.COMMAND}")
    assert first[2].endswith(f" output: {chats.OUTPUT}")
    assert first[3] == f"Assistant: {chats.ANSWER}"
    second = [block.text for block in parsed.blocks if block.section == sections[1]]
    assert second == [f"User: {chats.SECOND}", f"Assistant: {chats.SECOND_ANSWER}"]
    assert "idden" not in str(parsed.blocks)
    facts = parsed.metadata
    assert (facts["client"], facts["turns"]) == (client, 2)
    assert (facts["started"], facts["ended"]) == (chats.ASKED, chats.LAST)
    if client not in ("chatgpt", "claude"):
        assert facts["project"] == chats.PROJECT
    if client != "claude":
        assert facts["model"]
    assert facts["session"]


@pytest.mark.parametrize("shape", SESSIONS)
def test_a_session_is_two_turns(shape: str) -> None:
    name, make = SESSIONS[shape]
    parsed = read(name, make())
    check_turns(parsed, shape.split(maxsplit=1)[0])
    assert parsed.unread.get("thoughts", 0) == (shape != "opencode" or 1)


@pytest.mark.parametrize("client", EXPORTS)
@pytest.mark.parametrize("packed", [False, True])
def test_an_export_holds_its_conversations(client: str, packed: bool) -> None:
    data = EXPORTS[client]()
    name = "conversations.json"
    if packed:
        files = {"user.json": b"{}", "chat.html": b"<html>" * 9000, "conversations.json": data}
        name, data = "export.zip", zipped(files)
    parsed = read(name, data)
    assert [block.text for block in parsed.blocks] == ["2026-03-05 Ropes of the crane"]
    part = only_part(parsed)
    assert part.title == "Ropes of the crane"
    check_turns(part, client)
    assert part.unread.get("other_branches", 0) == (client == "chatgpt")


@chats.with_databases
def test_a_database_holds_its_sessions(tmp_path: Path) -> None:
    data = chats.opencode_database(tmp_path / "opencode.db")
    check_turns(only_part(read("opencode.db", data)), "opencode")


def test_a_thread_of_slack_is_a_turn() -> None:
    part = only_part(read("slack.zip", chats.slack()))
    assert part.title == "#crane, 2026-03"
    assert [(block.section, block.text) for block in part.blocks] == [
        ("2026-03-05 > turn 1, 14:03", f"Ann: {chats.QUESTION}"),
        (
            "2026-03-05 > turn 1, 14:03",
            f"Bo Li: @Ann {chats.ANSWER} the table (https://a.org/t)",
        ),
        ("2026-03-05 > turn 2, 14:05", "Bo Li: Lunch & tea?"),
    ]
    assert read("2026-03-05.json", chats.slack_day()).title == "Slack, 2026-03-05"


@pytest.mark.parametrize("shape", [*SESSIONS, *EXPORTS])
def test_what_is_stored_reads_as_the_same(shape: str) -> None:
    if shape in EXPORTS:
        parsed = only_part(read("conversations.json", EXPORTS[shape]()))
    else:
        parsed = read(SESSIONS[shape][0], SESSIONS[shape][1]())
    assert parsed.source is not None
    again = read("a.jsonl", parsed.source)
    assert (again.title, again.blocks, again.metadata) == (
        parsed.title,
        parsed.blocks,
        parsed.metadata,
    )
    assert (again.unread, again.source) == (parsed.unread, parsed.source)


# Name and bytes of each client's log.
SOURCES: dict[str, Callable[[Path], tuple[str, bytes]]] = {
    **{shape: lambda _, log=log: (log[0], log[1]()) for shape, log in SESSIONS.items()},
    **{client: lambda _, m=make: ("conversations.json", m()) for client, make in EXPORTS.items()},
    "opencode database": lambda folder: (
        "opencode.db",
        chats.opencode_database(folder / "opencode.db"),
    ),
    "slack": lambda _: ("slack.zip", chats.slack()),
}
SETUP = Setup(tokenizer=None, max_tokens=256, overlap=38, memory_bytes=1, timeout_s=60, parent=1)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, marks=chats.with_databases if shape == "opencode database" else ())
        for shape in SOURCES
    ],
)
def test_what_a_log_becomes(shape: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    name, data = SOURCES[shape](tmp_path)
    job = ParserJob(
        data=data, type="conversation", name=name, title=None, options=ReadOptions(parts=True)
    )
    parsed = worker.read(job, SETUP, count_words)
    documents = [(name, parsed), *((part.path, part.parsed) for part in parsed.parts)]
    text = "\n".join(
        line for path, one in documents if one is not None for line in described(path, one)
    )
    assert f"{text}\n" == snapshot(extension_class=Transcripts)


def described(path: str, parsed: ParsedChunks) -> Iterator[str]:
    yield f"== {path}: {parsed.title}"
    yield f"metadata {json.dumps(parsed.metadata)}"
    yield f"unread {json.dumps(parsed.unread)}"
    for chunk in parsed.chunks:
        sections = [mark.section for mark in chunk.marks] or [chunk.section]
        yield f"-- {'; '.join(section or 'no section' for section in sections)}"
        yield chunk.text
    yield "-- stored"
    yield (parsed.source or b"").decode().rstrip()


def test_long_output_is_cut_and_pictures_are_left_out() -> None:
    output = "\n".join(f"line {number} of a long output" for number in range(1000))
    data = chats.claude_code().replace(chats.OUTPUT.encode(), json.dumps(output)[1:-1].encode())
    parsed = read("a.jsonl", data)
    [text] = [block.text for block in parsed.blocks if "line 0 " in block.text]
    assert "line 999 of" in text
    assert "line 500 " not in text
    assert "characters left out" in text
    assert len(text) < 2000
    assert parsed.unread == {"pictures": 1, "thoughts": 1, "cut_outputs": 1}


def test_no_part_of_a_secret_stays_where_a_text_is_cut() -> None:
    rows = "\n".join(f"{number:064x}" for number in range(1, 27))
    key = f"-----BEGIN PRIVATE KEY-----\n{rows}\n-----END PRIVATE KEY-----"
    talk = ChatTranscript(client="codex", id=key, title=f"{'Keys ' * 50}{key}")
    talk.say("user", "Write the key.", name=key)
    talk.call("write", {"path": "key.pem", "content": key})
    assert finished(talk) is talk
    stored = encoded(talk).decode()
    assert f"{1:064x}" not in stored
    assert sum(count for kind, count in talk.unread.items() if kind.startswith(REDACTED)) == 4


def test_a_line_that_is_being_written_and_a_damaged_one() -> None:
    whole = chats.claude_code()
    parsed = read("a.jsonl", whole + b'{"type":"user","message":{"content":"half')
    assert parsed.blocks == read("a.jsonl", whole).blocks
    assert "damaged_lines" not in parsed.unread
    damaged = whole.replace(b"\n", b"\n{half\n", 1)
    assert read("a.jsonl", damaged).unread["damaged_lines"] == 1


def test_what_the_client_says_in_a_persons_name_is_left_out() -> None:
    added = "<system-reminder>Be brief.</system-reminder>What is new?"
    command = "<command-name>/review</command-name><command-args>main</command-args>"
    parsed = read("a.jsonl", chats.claude_code(added, more=False))
    assert parsed.blocks[0].text == "User: What is new?"
    assert read("a.jsonl", chats.claude_code(command)).blocks[0].text == "User: /review main"


def test_a_command_that_no_model_answers_is_no_question() -> None:
    command = "<command-name>/clear</command-name>\n<command-args></command-args>"
    parsed = read("a.jsonl", chats.claude_code(before=command))
    assert parsed.title == read("a.jsonl", chats.claude_code()).title
    assert "/clear" not in " ".join(block.text for block in parsed.blocks)


def test_other_json_is_no_conversation() -> None:
    others = [
        b'{"name": "a", "version": "1.0.0"}',
        b'[{"uuid": "1", "name": "a"}]',
        b'[{"type": "message", "ts": 1}]',
        b'{"type":"session","user":"ann"}\n',
        b'{"info": {"id": "x"}}',
        b"[]",
    ]
    for data in others:
        assert detect("a.json", data) == "code"
        assert detect("a.jsonl", data) == "code"
    assert detect("a.zip", b"PK\3\4 conversations", tail=b"data/words.json") is None
    assert detect("other.db", b"SQLite format 3\0") != "conversation"


@pytest.mark.parametrize("shape", SESSIONS)
def test_a_shape_with_odd_values_is_read_or_refused(shape: str) -> None:
    """No value in place of another raises anything but a typed error."""
    name, make = SESSIONS[shape]
    text = make().decode()
    for old in ('"content":', '"payload":', '"message":', '"type":', '"parts":', '"args":'):
        for new in ("null", "7", "[[]]", '{"a":{}}'):
            spoiled = text.replace(old, f'{old[:-1]}: {new}, "was":')
            parsed = parse(spoiled.encode(), "conversation", name) if _known(spoiled) else None
            assert parsed is None or isinstance(parsed.blocks, list)


def _known(text: str) -> bool:
    return detect("a.jsonl", text.encode()[:4096]) == "conversation"
