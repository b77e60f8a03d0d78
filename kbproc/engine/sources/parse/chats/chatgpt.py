"""Exports of ChatGPT: conversations.json, a list of conversations, each a tree of messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    members,
    word,
)

CLIENT = "chatgpt"
_HEAD = re.compile(
    rb'\s*+\[\s*+\{(?=.{0,3000}"mapping"\s*:\s*\{)(?=.{0,3000}"create_time"\s*:)', re.S
)
_CONTEXT = ("user_editable_context", "model_editable_context")


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    return [_conversation(each) for each in msgspec.json.decode(data, type=list[dict[str, Any]])]


def _conversation(record: Json) -> ChatTranscript:
    talk = ChatTranscript(
        client=CLIENT,
        id=word(record, "conversation_id", "id"),
        title=word(record, "title"),
        project=word(record, "gizmo_id", "conversation_template_id") or None,
        model=word(record, "default_model_slug") or None,
    )
    mapping = members(record, "mapping")
    branch = list(_branch(mapping, word(record, "current_node")))
    for message in branch:
        _add(talk, message)
    message_count = sum(1 for node in mapping.values() if _is_said(members(node, "message")))
    talk.unread["other_branches"] += message_count - sum(map(_is_said, branch))
    return talk


def _branch(mapping: Json, leaf: str) -> Iterator[Json]:
    """Yields the messages from the root to the node that was shown last."""
    path: list[Json] = []
    visited_nodes: set[str] = set()
    leaf = leaf or next(reversed(mapping), "")
    while leaf and leaf not in visited_nodes:
        visited_nodes.add(leaf)
        node = members(mapping, leaf)
        path.append(members(node, "message"))
        leaf = word(node, "parent")
    yield from reversed(path)


def _is_said(message: Json) -> bool:
    role = members(message, "author").get("role")
    hidden = members(message, "metadata").get("is_visually_hidden_from_conversation")
    kind = members(message, "content").get("content_type")
    return role in ("user", "assistant", "tool") and not hidden and kind not in _CONTEXT


def _add(talk: ChatTranscript, message: Json) -> None:
    if not _is_said(message):
        return
    author, content = members(message, "author"), members(message, "content")
    at = message.get("create_time")
    talk.model = word(members(message, "metadata"), "model_slug") or talk.model
    kind, role = content.get("content_type"), author.get("role")
    if kind in ("thoughts", "reasoning_recap"):
        talk.unread["thoughts"] += 1
        return
    text = _text(talk, content)
    if role == "user":
        talk.add("user", text, at=at)
    elif role == "tool":
        talk.add("result", text, at=at, name=word(author, "name"))
    elif message.get("recipient") not in (None, "all"):
        talk.add("call", text, at=at, name=word(message, "recipient"))
    else:
        talk.add("assistant", text, at=at)


def _text(talk: ChatTranscript, content: Json) -> str:
    texts = [word(content, "text", "result")]
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, str):
            texts.append(part)
        elif "asset_pointer" in members(part):
            is_picture = "image" in word(part, "content_type")
            talk.unread["pictures" if is_picture else "attachments"] += 1
        else:
            texts.append(word(members(part), "text"))
    return "\n\n".join(filter(None, texts))
