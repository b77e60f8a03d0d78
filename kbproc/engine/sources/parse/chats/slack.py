"""Exports of Slack: a ZIP with a folder for each channel and a file for each day.

A conversation is a month of a channel, because a channel's messages of one day are few and those of
all its years are many. A thread is one turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kbproc.engine.sources.parse import json_values
from kbproc.engine.sources.parse.chats.message_blocks import texts_of_blocks
from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    Role,
    members,
    moment,
    objects,
    objects_of,
    word,
)

CLIENT = "slack"
_HEAD = re.compile(
    rb'\s*\[\s*\{(?=.{0,4000}"type"\s*:\s*"message")(?=.{0,4000}"ts"\s*:\s*"\d{10}\.\d{6}")', re.S
)
# Messages of the program about people who come and go.
_NOTICES = re.compile(r"(?:channel|group|bot)_(?:join|leave|topic|purpose|name|add|remove|archive)")
_MENTION = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|]{1,500})(?:\|(?P<label>[^<>]{0,300}))?>")
_MARKS = re.compile(r"[\W_]+")
# The name by which a preview is known as a text of the web.
_PREVIEW = "web preview"
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
            _add(talk, message, users, number)
    return talk


def _add(talk: ChatTranscript, message: Json, users: Mapping[str, str], turn: int) -> None:
    """Adds what was written, or what an app reports, then the pages that Slack shows below it."""
    attachments = objects(message.get("attachments"))
    pages = [each for each in attachments if _is_page(each)]
    text = _plain(word(message, "text"), users)
    pieces = texts_of_blocks(message.get("blocks"))
    pieces += [piece for each in attachments if not _is_page(each) for piece in _attachment(each)]
    parts = [text, *_new_pieces(text, [_plain(piece, users) for piece in pieces])]
    parts += [talk.file_name(name, mime) for name, mime in _files(message)]
    role: Role = "assistant" if _is_app(message) else "user"
    at = message.get("ts")
    talk.add(role, "\n".join(filter(None, parts)), at=at, name=_name(message, users), turn=turn)
    for page in pages:
        preview = _plain("\n".join(_attachment(page)), users)
        talk.add("result", preview, at=at, name=_PREVIEW, turn=turn)


def _is_app(message: Json) -> bool:
    return bool(message.get("bot_id")) or word(message, "subtype") == "bot_message"


def _is_page(attachment: Json) -> bool:
    """Returns True for the preview of a web page; other attachments are an author's own words."""
    address = word(attachment, "from_url", "original_url")
    return bool(address) and not attachment.get("is_msg_unfurl")


def _files(message: Json) -> Iterator[tuple[str, str]]:
    """Yields the name and the type of each file."""
    for file in [*objects(message.get("files")), *objects([message.get("file")])]:
        title, name = word(file, "title"), word(file, "name")
        both = f"{title} ({name})" if title and name and title != name else title or name
        yield both, word(file, "mimetype")


def _attachment(attachment: Json) -> list[str]:
    """Returns the texts that Slack shows of an attachment; its fallback where there is none."""
    title, address = word(attachment, "title"), word(attachment, "title_link", "from_url")
    texts = [
        word(attachment, "pretext"),
        word(attachment, "author_name"),
        f"{title} ({address})" if title and address else title,
        word(attachment, "text"),
    ]
    for field in objects(attachment.get("fields")):
        texts.append(": ".join(filter(None, (word(field, "title"), word(field, "value")))))
    texts += texts_of_blocks(attachment.get("blocks"))
    for shared in objects(attachment.get("message_blocks")):
        texts += texts_of_blocks(members(shared, "message").get("blocks"))
    texts.append(word(attachment, "footer"))
    return [*filter(None, texts)] or [*filter(None, [word(attachment, "fallback")])]


def _new_pieces(text: str, pieces: Iterable[str]) -> Iterator[str]:
    """Yields the pieces that are neither the text nor a line of it, which blocks often repeat."""
    repeated = {_letters(text), *map(_letters, text.splitlines())}
    for piece in pieces:
        letters = _letters(piece)
        if letters not in repeated:
            repeated.add(letters)
            yield piece


def _letters(text: str) -> str:
    """Returns a text without its marks, by which a message and its blocks differ."""
    return _MARKS.sub("", text)


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
