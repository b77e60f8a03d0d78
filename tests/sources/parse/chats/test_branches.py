"""The branch of a session that was continued is read, and the others are counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbproc.engine.sources.parse.chats import claude_ai, claude_code, codex, gemini, opencode, pi
from kbproc.engine.sources.parse.chats.turns import ChatTranscript
from tests.kit import chats

Record = dict[str, Any]


def words(talk: ChatTranscript) -> str:
    return " ".join(each.text for each in talk.messages)


def code(uuid: str, parent: str | None, content: Any, **more: Any) -> Record:
    """Returns a record of Claude Code; an answer's uuid begins with "a"."""
    role = "assistant" if uuid.startswith("a") else "user"
    message = {"role": role, "content": content, "id": more.pop("message", uuid)}
    head = {"type": role, "uuid": uuid, "parentUuid": parent, "timestamp": chats.ASKED}
    return {**head, "isSidechain": False, "sessionId": "s", "message": message, **more}


def tool(id: str) -> list[Record]:
    return [{"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}}]


def output(id: str) -> list[Record]:
    return [{"type": "tool_result", "tool_use_id": id, "content": f"out-{id}"}]


def queued(prompt: Any, **more: Any) -> Record:
    attachment = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt", **more}
    return {
        "type": "attachment",
        "uuid": f"x{prompt}",
        "parentUuid": "a1",
        "sessionId": "s",
        "timestamp": chats.SAID,
        "attachment": attachment,
    }


BOUNDARY = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
TALKS: dict[str, tuple[list[Record], str, int]] = {
    "a question that was written anew": (
        [
            code("u1", None, "one"),
            code("a1", "u1", "two"),
            code("u2", "a1", "wrong"),
            code("a2", "u2", tool("w")),
            code("u3", "a2", output("w")),
            code("u4", "a1", "three"),
            code("a4", "u4", "four"),
        ],
        "one two three four",
        3,
    ),
    "the first question, written anew": (
        [code("u1", None, "wrong"), code("a1", "u1", "wrong"), code("u2", None, "one")],
        "one",
        2,
    ),
    "an older branch that was resumed": (
        [
            code("u1", None, "one"),
            code("a1", "u1", "two"),
            code("u2", "a1", "wrong"),
            code("u3", "a1", "wrong, too"),
            code("a3", "u3", "wrong"),
            code("a2", "u2", "three"),
        ],
        "one two wrong three",
        2,
    ),
    "tools at the same time": (
        [
            code("u1", None, "one"),
            code("a1", "u1", tool("p"), message="m"),
            code("u2", "a1", output("p")),
            code("a2", "a1", tool("q"), message="m"),
            code("u3", "a2", output("q")),
            code("a3", "u3", "two"),
        ],
        "one p out-p q out-q two",
        0,
    ),
    "a summary begins a new tree": (
        [
            code("u1", None, "one"),
            code("a1", "u1", "two"),
            {**BOUNDARY, "logicalParentUuid": "gone"},
            code("u2", "b", "summary", isCompactSummary=True),
            code("u3", "u2", "three"),
        ],
        "one two three",
        0,
    ),
    "a parent that is not in the log": (
        [
            code("u1", None, "one"),
            code("a1", "u1", "two"),
            code("u2", "progress", "three"),
            code("a2", "u2", "four"),
        ],
        "one two three four",
        0,
    ),
    "a log without a tree": ([code("u1", None, "one"), code("a1", None, "two")], "one two", 0),
    "a circle": ([code("u1", "a1", "one"), code("a1", "u1", "two")], "one two", 0),
}


@pytest.mark.parametrize("name", TALKS)
def test_claude_code_s_continued_branch_is_read(name: str) -> None:
    records, expected, count = TALKS[name]
    [talk] = claude_code.read(chats.lines(*records))
    assert words(talk) == expected
    assert talk.unread["other_branches"] == count


def test_what_a_person_typed_meanwhile_is_a_question() -> None:
    def operation(name: str, **more: Any) -> Record:
        return {"type": "queue-operation", "operation": name, "timestamp": chats.SAID, **more}

    talk = claude_code.read(
        chats.lines(
            code("u1", None, "one"),
            code("a1", "u1", "two"),
            operation("enqueue", content="three"),
            queued("three"),
            operation("remove", reason="absorbed_mid_turn"),
            queued([{"type": "text", "text": "four"}, {"type": "image"}], origin={"kind": "human"}),
            queued("no", commandMode="task-notification"),
            queued("no", origin={"kind": "peer"}),
            queued("no", isMeta=True),
            queued("no", type="file", filename="a.txt"),
            operation("enqueue", content="five"),
            operation("remove"),
            operation("enqueue", content="sent as a message of its own"),
            operation("dequeue"),
            operation("enqueue", content="taken back"),
            operation("popAll"),
            operation("remove"),
        )
    )[0]
    assert words(talk) == "one two three four five"
    assert [each.role for each in talk.messages[2:]] == ["user"] * 3
    assert talk.messages[2].at == chats.SAID
    assert (talk.unread["pictures"], talk.unread["attachments"]) == (1, 1)


def test_pi_and_claude_leave_out_what_was_written_anew() -> None:
    def entry(id: str, parent: str | None, text: str) -> Record:
        role = "assistant" if id.startswith("a") else "user"
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        return {"type": "message", "id": id, "parentId": parent, "message": message}

    tree = [("u1", None, "one"), ("a1", "u1", "two"), ("u2", "a1", "wrong"), ("u3", "a1", "three")]
    head = {"type": "session", "id": "s", "cwd": "/"}
    [talk] = pi.read(chats.lines(head, *(entry(*each) for each in tree)))
    assert (words(talk), talk.unread["other_branches"]) == ("one two three", 1)
    root = "00000000-0000-4000-8000-000000000000"
    messages = [
        {
            "uuid": id,
            "parent_message_uuid": parent or root,
            "sender": "assistant" if id.startswith("a") else "human",
            "text": text,
        }
        for id, parent, text in tree
    ]
    for leaf, expected in (("", "one two three"), ("u2", "one two wrong")):
        export = [{"chat_messages": messages, "current_leaf_message_uuid": leaf}]
        [talk] = claude_ai.read(json.dumps(export).encode())
        assert (words(talk), talk.unread["other_branches"]) == (expected, 1)


def test_turns_that_were_rolled_back_are_left_out() -> None:
    back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    [talk] = codex.read(chats.codex() + chats.lines(back))
    assert (chats.ANSWER in words(talk), chats.SECOND in words(talk)) == (True, False)
    assert (talk.unread["other_branches"], max(talk.borders)) == (2, 3)
    back["payload"]["num_turns"] = 9  # type: ignore[index]
    assert codex.read(chats.codex() + chats.lines(back))[0].messages == []
    assert gemini.read(chats.gemini_lines())[0].unread["other_branches"] == 1
    export = json.loads(chats.opencode_export())
    [whole] = opencode.read(json.dumps(export).encode())
    for revert in ({"messageID": "msg_3"}, '{"messageID":"msg_3"}'):
        export["info"]["revert"] = revert
        [talk] = opencode.read(json.dumps(export).encode())
        assert words(talk) == words(whole).partition(f" {chats.SECOND}")[0]
        assert talk.unread["other_branches"] == 2
    export["info"]["revert"] = "no JSON"
    assert words(opencode.read(json.dumps(export).encode())[0]) == words(whole)
