"""Session logs of pi: ~/.pi/agent/sessions/PROJECT/TIME_ID.jsonl."""

from __future__ import annotations

import re

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
    """Returns the session with the messages of all its branches, in the order of their times."""
    talk = ChatTranscript(client=CLIENT)
    for record in json_lines(data, talk.unread):
        kind = record.get("type")
        if kind == "session":
            talk.id, talk.project = word(record, "id"), word(record, "cwd") or None
            talk.model = word(record, "modelId") or talk.model
        elif kind == "model_change":
            talk.model = word(record, "modelId") or talk.model
        elif kind == "session_info":
            talk.title = word(record, "name") or talk.title
        elif kind == "message":
            message = members(record, "message")
            _add(talk, message, record.get("timestamp") or message.get("timestamp"))
    return [talk]


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
