"""Session logs and exports in the shapes of their clients, all of the same short conversation."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.sources.parse.chats import opencode
from tests.kit.talk import Session
from tests.kit.zips import zipped

PROJECT = "/home/ann/crane"
QUESTION = "Which rope does the crane need?"
ANSWER = "A steel rope of 12 mm, by the table of loads."
COMMAND = "cat loads.csv"
OUTPUT = "12 mm,4 t"
SECOND = "And how often is it inspected?"
SECOND_ANSWER = "Every year, in March."
# The times of the messages.
ASKED, SAID = "2026-03-05T14:03:10Z", "2026-03-05T14:03:40Z"
AGAIN, LAST = "2026-03-06T09:00:00Z", "2026-03-06T09:00:20Z"
UUID = "6f1c2a34-0000-4000-8000-00000000000"


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(
        json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records
    )


def _claude_code(*records: tuple[str, str, Any]) -> bytes:
    common = {"isSidechain": False, "sessionId": f"{UUID}1", "cwd": PROJECT, "version": "2.1.0"}
    rows = []
    for number, (role, at, content) in enumerate(records):
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message["model"] = "claude-opus-4-6"
        rows.append(
            {
                "parentUuid": None,
                **common,
                "type": role,
                "message": message,
                "uuid": f"u{number}",
                "timestamp": at,
            }
        )
    return lines(*rows)


def claude_code(question: str = QUESTION, *, more: bool = True, before: str = "") -> bytes:
    """Returns a log; `more`: with its second turn; `before`: what the person wrote before it."""
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": COMMAND}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": OUTPUT}
    picture = {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo="}}
    records: list[tuple[str, str, Any]] = [
        *([("user", ASKED, before)] if before else []),
        ("user", ASKED, [{"type": "text", "text": question}, picture]),
        ("assistant", ASKED, [{"type": "thinking", "thinking": "Hidden thought."}]),
        ("assistant", ASKED, [tool]),
        ("user", ASKED, [result]),
        ("assistant", SAID, [{"type": "text", "text": ANSWER}]),
    ]
    if more:
        records += [("user", AGAIN, SECOND), ("assistant", LAST, SECOND_ANSWER)]
    return _claude_code(*records)


def decision(question: str, answer: str, day: str) -> bytes:
    """Returns a log of one turn of that day, in which something is decided."""
    text = [{"type": "text", "text": answer}]
    turn = (("user", f"{day}T14:03:10Z", question), ("assistant", f"{day}T14:03:40Z", text))
    return _claude_code(*turn)


def codex() -> bytes:
    def item(at: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": at, "type": "response_item", "payload": payload}

    def message(at: str, role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return item(at, type="message", role=role, content=[{"type": kind, "text": text}])

    head = {"id": f"{UUID}2", "cwd": PROJECT, "base_instructions": {"text": "x" * 9000}}
    return lines(
        {"timestamp": ASKED, "type": "session_meta", "payload": head},
        message(ASKED, "user", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"),
        {"timestamp": ASKED, "type": "turn_context", "payload": {"model": "gpt-5.2-codex"}},
        message(ASKED, "user", QUESTION),
        {"timestamp": ASKED, "type": "event_msg", "payload": {"type": "user_message"}},
        item(ASKED, type="reasoning", summary=[], encrypted_content="gAAA"),
        item(
            ASKED,
            type="function_call",
            name="shell",
            call_id="c1",
            arguments=json.dumps({"command": COMMAND}),
        ),
        item(SAID, type="function_call_output", call_id="c1", output=OUTPUT),
        message(SAID, "assistant", ANSWER),
        message(AGAIN, "user", SECOND),
        message(LAST, "assistant", SECOND_ANSWER),
    )


def _gemini_messages() -> list[dict[str, Any]]:
    call = {
        "id": "c1",
        "name": "shell",
        "args": {"command": COMMAND},
        "result": [{"functionResponse": {"id": "c1", "response": {"output": OUTPUT}}}],
        "status": "success",
        "timestamp": ASKED,
    }
    return [
        {"id": "m1", "timestamp": ASKED, "type": "user", "content": [{"text": QUESTION}]},
        {
            "id": "m2",
            "timestamp": SAID,
            "type": "gemini",
            "content": "",
            "model": "gemini-3-pro",
            "thoughts": [{"subject": "Ropes", "description": "Hidden thought."}],
            "toolCalls": [call],
        },
        {"id": "m3", "timestamp": SAID, "type": "gemini", "content": ANSWER},
        {"id": "m4", "timestamp": AGAIN, "type": "user", "content": SECOND},
        {"id": "m5", "timestamp": LAST, "type": "gemini", "content": SECOND_ANSWER},
    ]


_GEMINI = {"sessionId": f"{UUID}3", "projectHash": "ab" * 32, "startTime": ASKED}


def gemini() -> bytes:
    session = {**_GEMINI, "messages": _gemini_messages(), "directories": [PROJECT]}
    return json.dumps(session, indent=2).encode()


def gemini_lines() -> bytes:
    """Returns the newer shape, in which records change and rewind what is before them."""
    first, *rest = _gemini_messages()
    wrong = {"id": "m0", "timestamp": ASKED, "type": "user", "content": "A slip of the pen."}
    return lines(
        {**_GEMINI, "kind": "main"},
        first,
        wrong,
        {"$rewindTo": "m0"},
        *rest,
        {"$set": {"directories": [PROJECT]}},
    )


def _opencode() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    def ms(at: str) -> int:
        from datetime import datetime

        return int(datetime.fromisoformat(at).timestamp() * 1000)

    def message(id: str, role: str, at: str, *parts: dict[str, Any]) -> dict[str, Any]:
        info: dict[str, Any] = {"id": id, "role": role, "time": {"created": ms(at)}}
        if role == "assistant":
            info["modelID"] = "big-pickle"
        return {"info": info, "parts": list(parts)}

    state = {"status": "completed", "input": {"command": COMMAND}, "output": OUTPUT}
    info = {"id": "ses_1", "title": "Ropes of the crane", "directory": PROJECT, "version": "1.18"}
    return info, [
        message("msg_1", "user", ASKED, {"type": "text", "text": QUESTION}),
        message(
            "msg_2",
            "assistant",
            SAID,
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hidden thought."},
            {"type": "tool", "tool": "bash", "state": state},
            {"type": "text", "text": ANSWER},
        ),
        message("msg_3", "user", AGAIN, {"type": "text", "text": SECOND}),
        message("msg_4", "assistant", LAST, {"type": "text", "text": SECOND_ANSWER}),
    ]


def opencode_export() -> bytes:
    info, messages = _opencode()
    return json.dumps({"info": info, "messages": messages}, indent=2).encode()


# An SQLite that opens no bytes as a database reads none of opencode's, which a test of it shows.
with_databases = pytest.mark.skipif(
    not opencode.reads_databases(), reason="Python's SQLite opens no database in memory"
)


def opencode_database(path: Path) -> bytes:
    """Returns a database with one session, written with a write-ahead log as opencode's is."""
    info, messages = _opencode()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.executescript(
            "CREATE TABLE session (id, title, directory, time_created);"
            "CREATE TABLE message (id, session_id, time_created, data);"
            "CREATE TABLE part (id, message_id, session_id, data);"
        )
        connection.execute(
            "INSERT INTO session VALUES (?, ?, ?, 1)",
            (info["id"], info["title"], info["directory"]),
        )
        for number, each in enumerate(messages):
            id = each["info"]["id"]
            row = (id, info["id"], number, json.dumps(each["info"]))
            connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            for place, part in enumerate(each["parts"]):
                row = (f"prt_{number}{place}", id, info["id"], json.dumps(part))
                connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    connection.close()
    return path.read_bytes()


def pi() -> bytes:
    def entry(id: str, at: str, **message: Any) -> dict[str, Any]:
        return {"type": "message", "id": id, "parentId": None, "timestamp": at, "message": message}

    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": COMMAND}}
    text, thought = {"type": "text", "text": ANSWER}, {"type": "thinking", "thinking": "Hidden."}
    model = {"role": "assistant", "model": "claude-sonnet-5"}
    return lines(
        {"type": "session", "version": 3, "id": f"{UUID}4", "timestamp": ASKED, "cwd": PROJECT},
        entry("a1", ASKED, role="user", content=QUESTION),
        entry("a2", ASKED, content=[thought, call], **model),
        entry(
            "a3",
            ASKED,
            role="toolResult",
            toolName="bash",
            content=[{"type": "text", "text": OUTPUT}],
        ),
        entry("a4", SAID, content=[text], **model),
        entry("a5", AGAIN, role="user", content=SECOND),
        entry("a6", LAST, content=[{"type": "text", "text": SECOND_ANSWER}], **model),
    )


def chatgpt() -> bytes:
    def node(
        id: str, parent: str | None, role: str, at: str, text: str, **more: Any
    ) -> dict[str, Any]:
        from datetime import datetime

        content = {"content_type": "text", "parts": [text]}
        message = {
            "id": id,
            "author": {"role": role, "name": more.get("name")},
            "create_time": datetime.fromisoformat(at).timestamp(),
            "content": content,
            "metadata": {"model_slug": "gpt-6"} if role == "assistant" else {},
            "recipient": more.get("recipient", "all"),
        }
        return {"id": id, "message": message, "parent": parent, "children": []}

    nodes = [
        {"id": "root", "message": None, "parent": None, "children": []},
        node("n1", "root", "user", ASKED, QUESTION),
        node("n2", "n1", "assistant", ASKED, COMMAND, recipient="python"),
        node("n3", "n2", "tool", ASKED, OUTPUT, name="python"),
        node("n4", "n3", "assistant", SAID, ANSWER),
        node("n5", "n3", "assistant", SAID, "An answer that was made again."),
        node("n6", "n4", "user", AGAIN, SECOND),
        node("n7", "n6", "assistant", LAST, SECOND_ANSWER),
    ]
    talk = {
        "title": "Ropes of the crane",
        "create_time": 1772719390.0,
        "update_time": 1772787620.0,
        "mapping": {each["id"]: each for each in nodes},
        "current_node": "n7",
        "conversation_id": f"{UUID}5",
    }
    return json.dumps([talk]).encode()


def claude() -> bytes:
    def message(sender: str, at: str, *content: dict[str, Any]) -> dict[str, Any]:
        return {"uuid": at, "text": "", "sender": sender, "created_at": at, "content": content}

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    tool = {"type": "tool_use", "name": "bash", "input": {"command": COMMAND}}
    result = {"type": "tool_result", "name": "bash", "content": [text(OUTPUT)]}
    talk = {
        "uuid": f"{UUID}6",
        "name": "Ropes of the crane",
        "summary": "",
        "created_at": ASKED,
        "updated_at": LAST,
        "account": {"uuid": f"{UUID}7"},
        "chat_messages": [
            message("human", ASKED, text(QUESTION)),
            message("assistant", SAID, tool, result, text(ANSWER)),
            message("human", AGAIN, text(SECOND)),
            message("assistant", LAST, text(SECOND_ANSWER)),
        ],
    }
    return json.dumps([talk]).encode()


def slack_day() -> bytes:
    rows = [
        {"type": "message", "subtype": "channel_join", "user": "U1", "ts": "1772719000.000100"},
        {"type": "message", "user": "U1", "ts": "1772719390.000100", "text": QUESTION},
        {"type": "message", "user": "U2", "ts": "1772719500.000100", "text": "Lunch &amp; tea?"},
        {
            "type": "message",
            "user": "U2",
            "ts": "1772719600.000100",
            "thread_ts": "1772719390.000100",
            "text": f"<@U1> {ANSWER} <https://a.org/t|the table>",
        },
    ]
    return json.dumps(rows, indent=4).encode()


def slack() -> bytes:
    users = [
        {"id": "U1", "profile": {"display_name": "Ann"}},
        {"id": "U2", "profile": {"display_name": "", "real_name": "Bo Li"}},
    ]
    files = {
        "users.json": json.dumps(users).encode(),
        "channels.json": json.dumps([{"id": "C1", "name": "crane"}]).encode(),
        "crane/2026-03-05.json": slack_day(),
    }
    return zipped(files)


def long_log(turns: int, words: int = 400) -> list[bytes]:
    """Returns the lines of a session, each with a turn of some 2,500 characters."""
    return [
        claude_code(f"Question {turn} about tides{turn}: " + f"sea{turn} " * words, more=False)
        .replace(b'"uuid":"u', f'"uuid":"t{turn}u'.encode())
        .replace(b'"id":"t1"', f'"id":"c{turn}"'.encode())
        for turn in range(1, turns + 1)
    ]


def add(session: Session, **params: Any) -> dict[str, Any]:
    """Adds the logs as a person does: the plan is approved."""
    answer = session.ask("chats.add", **params)
    if "error" in answer:
        plan = answer["error"]["data"]["plan"]
        answer = session.ask("chats.add", confirm=plan["plan_hash"], **params)
    data: dict[str, Any] = answer["result"]["data"]
    return data
