"""kbproc's own shape of conversations: what a store keeps of one, and what an export writes."""

from __future__ import annotations

import re
from collections import Counter

from kbproc.engine.sources.parse.chats.turns import (
    ROLES,
    ChatTranscript,
    Json,
    json_lines,
    members,
    word,
)
from kbproc.engine.sources.parse.unread import KINDS

CLIENT = "kbproc"
_HEAD = re.compile(rb'\s*\{\s*"kbproc"\s*:\s*"conversation"')


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    """Returns the conversations of a file, whose messages are redacted again."""
    talks: list[ChatTranscript] = []
    damage: Counter[str] = Counter()
    for record in json_lines(data, damage):
        if record.get("kbproc") == "conversation":
            talks.append(_conversation(record))
        elif talks:
            _add(talks[-1], record)
    if talks:
        talks[0].unread.update(damage)
    return talks


def _conversation(record: Json) -> ChatTranscript:
    counts = members(record, "unread")
    return ChatTranscript(
        client=word(record, "client") or CLIENT,
        id=word(record, "id"),
        title=word(record, "title"),
        project=word(record, "project") or None,
        model=word(record, "model") or None,
        unread=Counter(
            {
                kind: count
                for kind, count in counts.items()
                if kind in KINDS and isinstance(count, int) and 0 < count < 1 << 40
            }
        ),
    )


def _add(talk: ChatTranscript, record: Json) -> None:
    role, turn = record.get("role"), record.get("turn")
    if role not in ROLES or not isinstance(record.get("text"), str):
        talk.unread["damaged_lines"] += 1
        return
    if not isinstance(turn, int) or isinstance(turn, bool) or not 0 < turn < 1 << 31:
        turn = 0
    talk.add(
        role,
        record["text"],
        at=record.get("at"),
        name=word(record, "name") or None,
        turn=turn,
    )
