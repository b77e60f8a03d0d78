"""Sessions of opencode: its database opencode.db, or what `opencode export` writes.

The database is read as bytes, in memory. What its write-ahead log has not handed over yet is not
in them; opencode hands it over within some pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import json_values
from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    members,
    object_of,
    objects,
    word,
)

if TYPE_CHECKING:
    import sqlite3

CLIENT = "opencode"
DATABASE = b"SQLite format 3\0"
_HEAD = re.compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"id"\s*:\s*"ses_')
_VERSIONS = slice(18, 20)  # bytes of the header that say how the database is written


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    if data.startswith(DATABASE):
        return list(_sessions(data))
    export = object_of(data)
    return [_conversation(members(export, "info"), objects(export.get("messages")))]


def _conversation(info: Json, messages: list[Json]) -> ChatTranscript:
    talk = ChatTranscript(
        client=CLIENT,
        id=word(info, "id"),
        title=word(info, "title"),
        project=word(info, "directory") or None,
    )
    if word(info, "parentID", "parent_id"):  # an agent speaks in a person's place
        return talk
    messages, undone = _until(messages, _reverted(info))
    talk.unread["other_branches"] += undone
    for message in messages:
        about, parts = members(message, "info"), objects(message.get("parts"))
        at = members(about, "time").get("created")
        talk.model = (
            word(about, "modelID") or word(members(about, "model"), "modelID") or talk.model
        )
        for part in parts:
            _add(talk, part, "user" if about.get("role") == "user" else "assistant", at)
    return talk


def _reverted(info: Json) -> str:
    """Returns the id of the message from which on a person has undone the session, or ""."""
    value = info.get("revert")
    if isinstance(value, str):  # the database holds it as JSON
        try:
            value = json_values.decode(value)
        except msgspec.DecodeError:
            return ""
    return word(members(value), "messageID")


def _until(messages: list[Json], id: str) -> tuple[list[Json], int]:
    """Returns the messages before this one, or all, and how many others there are."""
    ids = [word(members(message, "info"), "id") for message in messages]
    place = ids.index(id) if id and id in ids else len(ids)
    return messages[:place], len(ids) - place


def _add(talk: ChatTranscript, part: Json, role: Any, at: object) -> None:
    kind = part.get("type")
    if kind == "tool":
        state, name = members(part, "state"), word(part, "tool")
        when = members(state, "time").get("start") or at
        talk.call(name, state.get("input"), at=when)
        talk.add("result", word(state, "output", "error"), at=when, name=name)
    elif kind == "reasoning":
        talk.unread["thoughts"] += 1
    elif kind == "file":
        is_picture = word(part, "mime").startswith("image/")
        talk.unread["pictures" if is_picture else "attachments"] += 1
    elif kind == "text" and not part.get("synthetic"):
        talk.add(role, word(part, "text"), at=at)


def reads_databases() -> bool:
    """Returns whether Python's SQLite opens bytes as a database: up to 3.35 only if built so."""
    import sqlite3  # few files need it

    if sqlite3.sqlite_version_info < (3, 36):
        with closing(sqlite3.connect(":memory:")) as connection:
            options = connection.execute("pragma compile_options").fetchall()
        if ("ENABLE_DESERIALIZE",) not in options:
            return False
    return hasattr(sqlite3.Connection, "deserialize")


def _sessions(data: bytes) -> Iterator[ChatTranscript]:
    """Yields the sessions of a database. Raises sqlite3.Error for another one."""
    import sqlite3  # few files need it

    if not reads_databases():
        raise KbprocError(
            "operation.failed",
            f"Python's SQLite {sqlite3.sqlite_version} can't read a database in memory.",
            hint="Run kbproc with a Python whose SQLite is 3.36 or newer, or add what `opencode "
            "export` writes.",
        )
    content = bytearray(data)
    content[_VERSIONS] = b"\1\1"  # a database in memory has no write-ahead log
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(bytes(content))
        connection.execute("PRAGMA query_only = 1")
        connection.row_factory = sqlite3.Row
        for session in connection.execute("SELECT * FROM session ORDER BY time_created, id"):
            info = dict(session)
            yield _conversation(info, _messages(connection, info["id"]))


def _messages(connection: sqlite3.Connection, session: str) -> list[Json]:
    messages: dict[str, Json] = {}
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for id, data in connection.execute(query, (session,)):
        messages[id] = {"info": json_values.decode(data), "parts": []}
    query = "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
    for id, data in connection.execute(query, (session,)):
        if id in messages:
            messages[id]["parts"].append(json_values.decode(data))
    return list(messages.values())
