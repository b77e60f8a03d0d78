"""Session logs and exports become turns, lists and parts, whichever client wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.chats import turns
from kbproc.engine.sources.parse.conversation import (
    is_conversation,
    parse,
    section_of,
    segment_number,
)
from tests.kit import chats
from tests.kit.zips import zipped

FIRST, SECOND = "2026-03-05 > turn 1, 14:03", "2026-03-06 > turn 2, 09:00"


def test_a_session_is_a_block_for_each_message_below_its_turn() -> None:
    parsed = parse(chats.pi(), "a.jsonl")
    assert parsed.blocks == [
        Block(text=f"User: {chats.QUESTION}", section=FIRST),
        Block(text=f"bash: {chats.COMMAND}", section=FIRST, kind="code"),
        Block(text=f"bash output: {chats.OUTPUT}", section=FIRST, kind="code"),
        Block(text=f"Assistant: {chats.ANSWER}", section=FIRST),
        Block(text=f"User: {chats.SECOND}", section=SECOND),
        Block(text=f"Assistant: {chats.SECOND_ANSWER}", section=SECOND),
    ]
    assert parsed.title == chats.QUESTION
    assert parsed.metadata == {
        "client": "pi",
        "session": f"{chats.UUID}4",
        "project": chats.PROJECT,
        "model": "claude-sonnet-5",
        "started": chats.ASKED,
        "ended": chats.LAST,
        "turns": 2,
    }
    assert parsed.unread == {"thoughts": 1}
    assert parsed.origin is not None


def test_the_stored_source_reads_as_the_same_conversation() -> None:
    parsed = parse(chats.codex(), "a.jsonl")
    assert parsed.source is not None
    again = parse(parsed.source, "a.jsonl")
    assert (again.blocks, again.title, again.metadata) == (
        parsed.blocks,
        parsed.title,
        parsed.metadata,
    )


def test_an_export_is_a_list_whose_conversations_are_parts() -> None:
    parsed = parse(zipped({"x/conversations.json": chats.chatgpt()}), "a.zip")
    line = "2026-03-05 Ropes of the crane"
    assert parsed.blocks == [Block(text=line, kind="code")]
    assert parsed.metadata == {"conversations": 1}
    assert [part.name for part in parsed.parts] == [f"{chats.UUID}5.jsonl"]
    assert parse(parsed.parts[0].data, "b.jsonl").blocks[0].text == f"User: {chats.QUESTION}"
    # The list is stored, and reads as the same list without parts.
    again = parse(parsed.source or b"", "a.zip")
    assert (again.blocks, again.metadata, again.parts) == (parsed.blocks, parsed.metadata, [])


def test_conversations_of_one_id_are_two_parts_and_one_without_messages_is_none() -> None:
    talk = json.loads(chats.claude())[0]
    empty = {**talk, "chat_messages": []}
    parsed = parse(json.dumps([talk, empty, talk]).encode(), "conversations.json")
    assert [part.name for part in parsed.parts] == [
        f"{chats.UUID}6.jsonl",
        f"{chats.UUID}6-2.jsonl",
    ]
    assert parsed.metadata == {"conversations": 2}


def test_a_long_session_is_divided_only_where_parts_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "SEGMENT_CHARS", 3_000)
    data = b"".join(chats.long_log(5))
    whole, divided = parse(data, "a.jsonl"), parse(data, "a.jsonl", parts=True)
    assert whole.parts == []
    assert [part.name for part in divided.parts] == ["segment-2.jsonl", "segment-3.jsonl"]
    blocks = [block for part in divided.parts for block in parse(part.data, part.name).blocks]
    assert [*divided.blocks, *blocks] == whole.blocks
    # An export is never divided: its conversations are parts already.
    assert parse(chats.gemini(), "a.json", parts=True).parts == []


def test_a_long_list_is_several_blocks_and_names_of_parts_are_safe() -> None:
    talk = json.loads(chats.claude())[0]
    talks = [{**talk, "uuid": f"../a b/{number}", "name": "x" * 300} for number in range(7)]
    parsed = parse(json.dumps(talks).encode(), "conversations.json")
    line = "2026-03-05 " + "x" * 300
    assert [block.text for block in parsed.blocks] == ["\n".join([line] * 2)] * 3 + [line]
    assert [part.name for part in parsed.parts] == [f"a-b-{number}.jsonl" for number in range(7)]


def test_the_channels_of_slack_may_lie_in_a_folder_of_the_archive() -> None:
    day = {"crane/2026-03-05.json": chats.slack_day()}
    files = {"channels.json": b"[]", "users.json": b"[]", **day}
    packed = zipped({f"export/{name}": data for name, data in files.items()} | {"n.txt": b""})
    parsed = parse(packed, "a.zip")
    assert [block.text for block in parsed.blocks] == ["2026-03-05 #crane, 2026-03"]
    assert [part.name for part in parsed.parts] == ["crane-2026-03.jsonl"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("segment-2.jsonl", 2), ("segment-.jsonl", None), ("a/segment-2.jsonl", None), ("", None)],
)
def test_the_number_of_a_segment_is_in_its_name(name: str, number: int | None) -> None:
    assert segment_number(name) == number


def test_a_section_tells_the_day_the_turn_and_the_time() -> None:
    assert section_of(3, "2026-03-05T14:03:10Z") == "2026-03-05 > turn 3, 14:03"
    assert section_of(3, None) == "turn 3"


def test_a_conversation_is_known_by_its_first_and_last_bytes(tmp_path: Path) -> None:
    database = chats.opencode_database(tmp_path / "opencode.db")
    export, slack = zipped({"conversations.json": b"[]"}), chats.slack()
    assert is_conversation("opencode.db", ".db", database[:4096], b"")
    assert not is_conversation("other.db", ".db", database[:4096], b"")
    assert is_conversation("a.zip", ".zip", export[:100], export)
    assert is_conversation("a.zip", ".zip", slack[:100], slack)
    other = zipped({"my-conversations.json": b"[]", "users.json": b"[]"})
    assert not is_conversation("a.zip", ".zip", other[:100], other)
    assert is_conversation("a.jsonl", ".jsonl", b"\xef\xbb\xbf" + chats.pi()[:4096], b"")
    assert is_conversation("a.json", ".json", b'{"kbproc": "conversations"}', b"")
    assert not is_conversation("a.json", ".json", b'{"name": "pi"}', b"")
    assert not is_conversation("a.txt", ".txt", b"", b"")


@pytest.mark.parametrize(
    ("data", "type", "message"),
    [
        (b'{"a": 1}', "input.unsupported_type", "a is no conversation whose shape is known."),
        (b"", "input.unsupported_type", "a is no conversation whose shape is known."),
        (
            zipped({"conversations.json": b"[1]"}),
            "input.unsupported_type",
            "The archive's conversations.json is no export of ChatGPT or Claude.",
        ),
        (b"PK\3\4" + b"x" * 50, "operation.failed", "a is damaged: it is not a whole ZIP archive"),
    ],
)
def test_other_files_are_refused(data: bytes, type: str, message: str) -> None:
    with pytest.raises(KbprocError) as caught:
        parse(data, "a")
    assert caught.value.type == type
    assert caught.value.message.startswith(message)


def test_a_member_of_an_archive_that_is_damaged_is_named() -> None:
    whole = zipped({"conversations.json": chats.chatgpt()})
    at = whole.index(b"conversations.json") + 60
    with pytest.raises(KbprocError) as caught:
        parse(whole[:at] + b"\xff\xff\xff" + whole[at + 3 :], "a.zip")
    assert caught.value.type == "operation.failed"
    assert caught.value.message.startswith("conversations.json of the archive is damaged: ")
