"""Session logs of Codex, Gemini, opencode and pi become messages of one shape."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.chats import codex, gemini, opencode, pi
from kbproc.engine.sources.parse.chats.turns import ChatMessage, ChatTranscript
from tests.kit import chats

ASKED, SAID = chats.ASKED, chats.SAID


def only(talks: list[ChatTranscript]) -> ChatTranscript:
    [talk] = talks
    return talk


def shown(talk: ChatTranscript) -> list[tuple[str, str | None, str]]:
    return [(each.role, each.name, each.text) for each in talk.messages]


def turns(tool: str, at: str = ASKED) -> list[ChatMessage]:
    """Returns the messages of the log that tests/kit/chats.py writes; `at`: of the output."""
    return [
        ChatMessage(role="user", at=ASKED, text=chats.QUESTION),
        ChatMessage(role="call", at=ASKED, name=tool, text=chats.COMMAND),
        ChatMessage(role="result", at=at, name=tool, text=chats.OUTPUT),
        ChatMessage(role="assistant", at=SAID, text=chats.ANSWER),
        ChatMessage(role="user", at=chats.AGAIN, text=chats.SECOND),
        ChatMessage(role="assistant", at=chats.LAST, text=chats.SECOND_ANSWER),
    ]


LOGS = {
    codex: chats.codex(),
    gemini: chats.gemini(),
    opencode: chats.opencode_export(),
    pi: chats.pi(),
}


@pytest.mark.parametrize("reader", LOGS, ids=lambda reader: reader.CLIENT)
def test_a_log_is_known_by_its_head_and_by_its_own_reader_alone(reader: Any) -> None:
    assert [other.CLIENT for other in LOGS if other.recognises(LOGS[reader][:4096])] == [
        reader.CLIENT
    ]
    assert not any(reader.recognises(head) for head in (b"", b"{}", b"[]", b'{"type":"x"}'))


# ------------------------------------------------------------------ Codex


def test_a_log_of_codex_has_its_messages_and_facts() -> None:
    talk = only(codex.read(chats.codex()))
    assert talk.messages == turns("shell", SAID)
    assert (talk.client, talk.id, talk.project, talk.model) == (
        "codex",
        f"{chats.UUID}2",
        chats.PROJECT,
        "gpt-5.2-codex",
    )
    assert +talk.unread == {"thoughts": 1}


def test_the_older_shape_of_codex_has_no_envelopes() -> None:
    head = b'{"id":"6f1c2a34-0000-4000-8000-000000000002","timestamp":"2026-03-05T14:03:10Z",'
    head += b'"instructions":null}\n'
    assert codex.recognises(head)
    talk = only(
        codex.read(
            head
            + chats.lines(
                {"record_type": "state"},
                {"type": "message", "role": "user", "content": [{"type": "x", "text": "Lift?"}]},
                {
                    "type": "local_shell_call",
                    "call_id": "c",
                    "action": {"type": "exec", "command": ["ls", "-l"]},
                },
                {"type": "function_call_output", "call_id": "c", "output": '{"output":"a\\nb"}'},
                {"type": "function_call_output", "call_id": "d", "output": {"content": "odd"}},
                {"type": "function_call_output", "call_id": "d", "output": '{"output":'},
            )
        )
    )
    assert shown(talk) == [
        ("user", None, "Lift?"),
        ("call", "local_shell", "ls -l"),
        ("result", "local_shell", "a\nb"),
        ("result", None, "odd"),
        ("result", None, '{"output":'),
    ]


@pytest.mark.parametrize(
    "text",
    ["<environment_context>x", "# AGENTS.md instructions for x", " <skill>x", "<turn_aborted>"],
)
def test_words_that_codex_adds_are_not_those_of_a_person(text: str) -> None:
    parts = [{"type": "input_text", "text": each} for each in (text, "Lift?")]
    item = {"type": "message", "role": "user", "content": parts}
    own = {**item, "content": "<skills> are mine"}
    talk = only(
        codex.read(chats.lines(*({"type": "response_item", "payload": e} for e in (item, own))))
    )
    assert shown(talk) == [("user", None, "Lift?"), ("user", None, "<skills> are mine")]


def test_a_damaged_line_is_counted_and_one_that_is_being_written_is_not() -> None:
    talk = only(codex.read(chats.codex() + b'{"type": \n[1]\n{"type": "resp'))
    assert talk.messages == turns("shell", SAID)
    assert talk.unread["damaged_lines"] == 2


# ------------------------------------------------------------------ Gemini


@pytest.mark.parametrize("data", [chats.gemini(), chats.gemini_lines()], ids=["json", "lines"])
def test_both_shapes_of_gemini_are_the_same_session(data: bytes) -> None:
    talk = only(gemini.read(data))
    assert talk.messages == turns("shell")
    assert (talk.client, talk.id, talk.project, talk.model) == (
        "gemini-cli",
        f"{chats.UUID}3",
        chats.PROJECT,
        "gemini-3-pro",
    )
    assert talk.unread["thoughts"] == 1


def test_records_of_gemini_replace_and_rewind_those_before_them() -> None:
    def user(id: str, text: str) -> dict[str, Any]:
        return {"id": id, "type": "user", "content": text}

    first = {"sessionId": "s", "projectHash": "h"}
    talk = only(
        gemini.read(
            chats.lines(
                first,
                user("a", "one"),
                user("b", "two"),
                user("b", "two again"),
                {"$rewindTo": "b"},
                user("c", "three"),
            )
        )
    )
    assert shown(talk) == [("user", None, "one"), ("user", None, "three")]
    change = {"$set": {"messages": [user("z", "new"), "odd"], "summary": "Cranes"}}
    talk = only(gemini.read(chats.lines(first, user("a", "one"), change, user("d", "four"))))
    assert [text for _, _, text in shown(talk)] == ["new", "four"]
    assert talk.title == "Cranes"
    assert (
        only(gemini.read(chats.lines(first, user("a", "one"), {"$rewindTo": "x"}))).messages == []
    )


def test_the_output_of_a_tool_of_gemini_is_what_was_shown_else_its_response() -> None:
    calls: list[dict[str, Any]] = [
        {"name": "a", "args": {"x": 1, "y": "z"}, "resultDisplay": "shown", "result": [{}]},
        {"name": "b", "resultDisplay": {}, "result": [{"text": "part"}, {"inlineData": {}}]},
        {"name": "c", "result": [{"functionResponse": {"response": {"error": "no rope"}}}, 5]},
    ]
    session = {
        "sessionId": "s",
        "messages": [{"type": "gemini", "toolCalls": calls}, {"type": "info", "content": "x"}],
    }
    talk = only(gemini.read(json.dumps(session).encode()))
    assert shown(talk) == [
        ("call", "a", "x: 1\ny: z"),
        ("result", "a", "shown"),
        ("result", "b", "part"),
        ("result", "c", "no rope"),
    ]
    assert talk.unread["pictures"] == 1


# ------------------------------------------------------------------ opencode


@chats.with_databases
def test_an_export_and_the_database_of_opencode_hold_the_same_session(tmp_path: Path) -> None:
    export = only(opencode.read(chats.opencode_export()))
    database = only(opencode.read(chats.opencode_database(tmp_path / "opencode.db")))
    for talk in (export, database):
        times = [ASKED, SAID, SAID, SAID, chats.AGAIN, chats.LAST]
        assert talk.messages == [
            msgspec.structs.replace(message, at=at)
            for message, at in zip(turns("bash"), times, strict=True)
        ]
        assert (talk.id, talk.title, talk.project, talk.model) == (
            "ses_1",
            "Ropes of the crane",
            chats.PROJECT,
            "big-pickle",
        )
        assert +talk.unread == {"thoughts": 1}


def test_files_of_opencode_are_counted_and_synthetic_texts_are_not_read() -> None:
    parts = [
        {"type": "file", "mime": "image/png"},
        {"type": "file", "mime": "text/plain"},
        {"type": "text", "text": "added", "synthetic": True},
        {"type": "text", "text": "Lift?"},
        {"type": "tool", "tool": "bash", "state": {"input": {"command": "ls"}, "error": "no ls"}},
    ]
    export = {
        "info": {"id": "ses_1"},
        "messages": [
            {"info": {"role": "user", "model": {"modelID": "m"}}, "parts": parts},
            {"info": 5, "parts": 5},
        ],
    }
    talk = only(opencode.read(json.dumps(export).encode()))
    assert shown(talk) == [
        ("user", None, "Lift?"),
        ("call", "bash", "ls"),
        ("result", "bash", "no ls"),
    ]
    assert (talk.model, talk.unread["pictures"], talk.unread["attachments"]) == ("m", 1, 1)


def test_an_sqlite_that_opens_no_bytes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = chats.opencode_database(tmp_path / "opencode.db")
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 35, 5))
    monkeypatch.setattr("sqlite3.sqlite_version", "3.35.5")
    with pytest.raises(KbprocError, match=r"SQLite 3\.35\.5 can't read a database in memory"):
        opencode.read(data)


@chats.with_databases
def test_another_database_raises_the_error_of_its_library() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE other (id)")
        data = connection.serialize()
    connection.close()
    for damaged in (data, opencode.DATABASE + bytes(100)):
        with pytest.raises(sqlite3.Error):
            opencode.read(damaged)


# ------------------------------------------------------------------ pi


def test_a_session_of_pi_has_its_messages_and_facts() -> None:
    talk = only(pi.read(chats.pi()))
    assert talk.messages == turns("bash")
    assert (talk.client, talk.id, talk.project, talk.model) == (
        "pi",
        f"{chats.UUID}4",
        chats.PROJECT,
        "claude-sonnet-5",
    )
    assert +talk.unread == {"thoughts": 1}


def test_records_of_pi_change_its_title_and_model_and_commands_are_calls() -> None:
    message = {"role": "bashExecution", "command": "ls", "output": "a", "timestamp": 1772719390000}
    talk = only(
        pi.read(
            chats.lines(
                {"type": "session", "id": "s", "modelId": "first"},
                {"type": "model_change", "modelId": "second"},
                {"type": "session_info", "name": "Cranes"},
                {"type": "message", "message": message},
                {"type": "message", "message": {"role": "user", "content": [{"type": "image"}]}},
                {"type": "message", "message": {"role": "assistant", "content": "odd"}},
                {"type": "message"},
            )
        )
    )
    assert talk.messages == [
        ChatMessage(role="call", at=ASKED, name="bash", text="ls"),
        ChatMessage(role="result", at=ASKED, name="bash", text="a"),
    ]
    assert (talk.title, talk.model, talk.project) == ("Cranes", "second", None)
    assert talk.unread["pictures"] == 1
