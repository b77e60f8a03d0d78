"""Exports of Slack: a ZIP with a folder for each channel and a file for each day.

A conversation is a month of a channel, because a channel's messages of one day are few and those of
all its years are many. A thread is one turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kbproc.engine.sources.parse import json_values
from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    members,
    moment,
    objects,
    objects_of,
    word,
)

CLIENT = "slack"
_HEAD = re.compile(
    rb'\s*\[\s*\{(?=.{0,2500}"type"\s*:\s*"message")(?=.{0,2500}"ts"\s*:\s*"\d{10}\.\d{6}")', re.S
)
# Messages of the program about people who come and go.
_NOTICES = re.compile(r"(?:channel|group|bot)_(?:join|leave|topic|purpose|name|add|remove|archive)")
_MENTION = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|]{1,500})(?:\|(?P<label>[^<>]{0,300}))?>")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    """Returns the messages of one file of an export."""
    messages = objects_of(data)
    days = [moment(message.get("ts")) for message in messages]
    day = next((each[:10] for each in days if each), "")
    return [_conversation(f"Slack, {day}", day, "", messages, {})]


def from_files(files: Mapping[str, bytes]) -> Iterator[ChatTranscript]:
    """Yields a conversation for each channel and month of an export's files, by their paths."""
    users = {
        word(user, "id"): word(members(user, "profile"), "display_name", "real_name")
        or word(user, "real_name", "name")
        for user in objects(json_values.decode(files.get("users.json", b"[]")))
    }
    months: dict[tuple[str, str], list[Json]] = {}
    for path, data in sorted(files.items()):
        channel, _, day = path.rpartition("/")
        if channel and re.fullmatch(r"\d{4}-\d\d-\d\d\.json", day):
            months.setdefault((channel.rpartition("/")[2], day[:7]), []).extend(
                objects(json_values.decode(data))
            )
    for (channel, month), messages in months.items():
        yield _conversation(f"#{channel}, {month}", f"{channel}-{month}", channel, messages, users)


def _conversation(
    title: str, id: str, channel: str, messages: Iterable[Json], users: Mapping[str, str]
) -> ChatTranscript:
    talk = ChatTranscript(client=CLIENT, id=id, title=title, project=channel or None)
    threads: dict[str, list[Json]] = {}
    for message in sorted(messages, key=lambda each: word(each, "ts")):
        if not _NOTICES.match(word(message, "subtype")):
            threads.setdefault(word(message, "thread_ts", "ts"), []).append(message)
    for number, thread in enumerate(threads.values(), 1):
        for message in thread:
            name = _name(message, users)
            text = _plain(word(message, "text"), users)
            talk.add("user", text, at=message.get("ts"), name=name, turn=number)
            for file in objects(message.get("files")):
                is_picture = word(file, "mimetype").startswith("image/")
                talk.unread["pictures" if is_picture else "attachments"] += 1
    return talk


def _name(message: Json, users: Mapping[str, str]) -> str:
    profile = members(message, "user_profile")
    user = word(message, "user")
    return (
        word(profile, "display_name", "real_name")
        or users.get(user)
        or word(message, "username")
        or word(members(message, "bot_profile"), "name")
        or user
        or "unknown"
    )


def _plain(text: str, users: Mapping[str, str]) -> str:
    """Returns a text with names in place of ids, and addresses in place of links."""

    def shown(match: re.Match[str]) -> str:
        kind, target, label = match["kind"], match["target"], match["label"]
        if kind == "@":
            return f"@{label or users.get(target) or target}"
        if kind == "#":
            return f"#{label or target}"
        if kind:
            is_mention = not (target.startswith("date^") or (label or "").startswith("@"))
            return f"{'@' * is_mention}{label or target}"
        return f"{label} ({target})" if label and label != target else target

    text = _MENTION.sub(shown, text)
    return re.sub("|".join(_ENTITIES), lambda match: _ENTITIES[match[0]], text)
