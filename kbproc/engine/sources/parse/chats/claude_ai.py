"""Exports of Claude: conversations.json, a list of conversations with their messages."""

from __future__ import annotations

import re
from typing import Any

from kbproc.engine.sources.parse.chats.branches import Node, left_behind
from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    members,
    objects,
    records_of,
    word,
)

CLIENT = "claude"
_HEAD = re.compile(
    rb'\s*(?:\[\s*)?\{\s*"uuid"\s*:(?=.{0,4000}"(?:chat_messages|account)"\s*:)', re.S
)
_NO_PARENT = "00000000-"  # the parent of a conversation's first message


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head)) and b'"name"' in head and b'"created_at"' in head


def read(data: bytes) -> list[ChatTranscript]:
    return [_conversation(each) for each in records_of(data)]


def _conversation(record: Json) -> ChatTranscript:
    talk = ChatTranscript(
        client=CLIENT,
        id=word(record, "uuid"),
        title=word(record, "name"),
        project=word(members(record, "project"), "name") or None,
        model=word(record, "model") or None,
    )
    messages = objects(record.get("chat_messages"))
    other_branches = _left_behind(messages, word(record, "current_leaf_message_uuid"))
    for message in messages:
        if word(message, "uuid") in other_branches:
            talk.unread["other_branches"] += 1
        else:
            _add(talk, message)
    return talk


def _left_behind(messages: list[Json], leaf: str) -> set[str]:
    """Returns the uuids of messages that were written or answered anew."""
    nodes: list[Node] = []
    for message in messages:
        uuid, parent = word(message, "uuid"), word(message, "parent_message_uuid")
        is_human = message.get("sender") == "human"
        if not uuid or not (parent or is_human):
            return set()  # a conversation without a tree
        parent = "" if parent.startswith(_NO_PARENT) else parent
        nodes.append(Node(uuid, parent, uuid, is_root=is_human))
    ids = [node.id for node in nodes]
    return left_behind(nodes, leaf if leaf in ids else ids[-1] if ids else "")


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
    names = [
        talk.file_name(word(file, "file_name"), _mime(file))
        for file in objects(message.get("files"))
    ]
    talk.add(role, "\n".join(filter(None, names)), at=at)


def _mime(file: Json) -> str:
    return "image" if file.get("file_kind") == "image" else word(file, "file_type")
