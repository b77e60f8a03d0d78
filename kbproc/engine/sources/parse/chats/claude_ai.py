"""Exports of Claude: conversations.json, a list of conversations with their messages."""

from __future__ import annotations

import re
from typing import Any

from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    members,
    objects,
    objects_of,
    word,
)

CLIENT = "claude"
_HEAD = re.compile(rb'\s*\[\s*\{\s*"uuid"\s*:(?=.{0,4000}"(?:chat_messages|account)"\s*:)', re.S)


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head)) and b'"name"' in head and b'"created_at"' in head


def read(data: bytes) -> list[ChatTranscript]:
    return [_conversation(each) for each in objects_of(data)]


def _conversation(record: Json) -> ChatTranscript:
    talk = ChatTranscript(
        client=CLIENT,
        id=word(record, "uuid"),
        title=word(record, "name"),
        project=word(members(record, "project"), "name") or None,
        model=word(record, "model") or None,
    )
    for message in objects(record.get("chat_messages")):
        _add(talk, message)
    return talk


def _add(talk: ChatTranscript, message: Json) -> None:
    at = message.get("created_at")
    role: Any = "user" if message.get("sender") == "human" else "assistant"
    content = objects(message.get("content"))
    if not content:
        talk.add(role, word(message, "text"), at=at)
    for part in content:
        kind, when = part.get("type"), part.get("start_timestamp") or at
        if kind == "tool_use":
            talk.call(word(part, "name"), part.get("input"), at=when)
        elif kind == "tool_result":
            talk.say("result", part.get("content"), at=when, name=word(part, "name"))
        else:
            talk.say(role, part, at=when)
    for attachment in objects(message.get("attachments")):
        text = word(attachment, "extracted_content")
        talk.add("result", text, at=at, name=word(attachment, "file_name"))
    talk.unread["attachments"] += len(objects(message.get("files")))
