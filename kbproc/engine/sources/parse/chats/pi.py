"""Session logs of pi: ~/.pi/agent/sessions/PROJECT/TIME_ID.jsonl."""

from __future__ import annotations

import re

from kbproc.engine.sources.parse.chats.branches import Node, left_behind
from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    json_lines,
    members,
    objects,
    word,
)

CLIENT = "pi"
_HEAD = re.compile(rb'\s*\{\s*"type"\s*:\s*"session"\s*,(?=.{0,600}"(?:cwd|version)"\s*:)', re.S)


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    """Returns the session with the branch on which it was continued last."""
    talk = ChatTranscript(client=CLIENT)
    records = list(json_lines(data, talk.unread))
    other_branches = _left_behind(records)
    for record in records:
        kind = record.get("type")
        if kind == "session":
            talk.id, talk.project = word(record, "id"), word(record, "cwd") or None
            talk.model = word(record, "modelId") or talk.model
        elif kind == "model_change":
            talk.model = word(record, "modelId") or talk.model
        elif kind == "session_info":
            talk.title = word(record, "name") or talk.title
        elif kind == "message" and word(record, "id") in other_branches:
            talk.unread["other_branches"] += 1
        elif kind == "message":
            message = members(record, "message")
            _add(talk, message, record.get("timestamp") or message.get("timestamp"))
    return [talk]


def _left_behind(records: list[Json]) -> set[str]:
    """Returns the ids of the entries on branches that were not continued."""
    nodes: list[Node] = []
    for record in records:
        id, parent = word(record, "id"), word(record, "parentId")
        role = members(record, "message").get("role")
        if role == "assistant" and not parent:
            return set()  # a log without a tree
        if id and record.get("type") != "session":
            nodes.append(Node(id, parent, id, is_root=role == "user"))
    return left_behind(nodes, nodes[-1].id if nodes else "")


def _add(talk: ChatTranscript, message: Json, at: object) -> None:
    role = message.get("role")
    if role == "user":
        talk.say("user", message.get("content"), at=at)
    elif role == "assistant":
        talk.model = word(message, "model") or talk.model
        for part in objects(message.get("content")):
            if part.get("type") == "toolCall":
                talk.call(word(part, "name"), part.get("arguments"), at=at)
            else:
                talk.say("assistant", part, at=at)
    elif role == "toolResult":
        talk.say("result", message.get("content"), at=at, name=word(message, "toolName"))
    elif role == "bashExecution":
        talk.call("bash", word(message, "command"), at=at)
        talk.add("result", word(message, "output"), at=at, name="bash")
