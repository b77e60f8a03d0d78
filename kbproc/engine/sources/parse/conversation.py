"""Conversations: session logs of coding agents, and exports of chats.

A session is a document. An export of many conversations is a document that lists them, and each of
them is a part of it. In place of the bytes that were read, a store keeps the conversation in
kbproc's own shape, which is without secrets, pictures and long output: see chats/turns.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import packed
from kbproc.engine.sources.parse.blocks import PATH, Block, Parsed, Part, Scalar
from kbproc.engine.sources.parse.chats import (
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    gemini,
    opencode,
    pi,
    slack,
    stored,
)
from kbproc.engine.sources.parse.chats.turns import (
    WHOLE,
    ChatMessage,
    ChatTranscript,
    Role,
    encoded,
    finished,
    json_lines,
    message_key,
    message_keys,
    segments,
    word,
)

_READERS: tuple[ModuleType, ...] = (
    stored,
    claude_code,
    codex,
    gemini,
    opencode,
    pi,
    chatgpt,
    claude_ai,
    slack,
)
# Exports whose files are lists of conversations, also where there is only one yet, or one alone.
_EXPORTS = (chatgpt, claude_ai)
_SEGMENT = "segment-{}.jsonl"
_SEGMENT_NAME = re.compile(re.escape(_SEGMENT).replace(r"\{\}", r"(\d{1,6})"))
# Logs to whose end their clients add lines.
_LOGS = (claude_code, codex, pi)
LIST_OF_EXPORT = re.compile(rb'\s*\{\s*"kbproc"\s*:\s*"conversations"')
_ZIPPED = re.compile(rb"(?:^|[^\w-])conversations(?:-\d{1,4})?\.json")
_LISTED_CHARS = 900


def is_conversation(name: str, suffix: str, head: bytes, tail: bytes) -> bool:
    """Returns True for a file that a reader knows, by its first and last bytes.

    `tail` holds the names of a ZIP's files. A database is opencode's by its name.
    """
    if suffix == ".db":
        return head.startswith(opencode.DATABASE) and name.startswith("opencode")
    if suffix == ".zip":
        is_slack = b"channels.json" in tail and b"users.json" in tail
        return head.startswith(b"PK\3\4") and (bool(_ZIPPED.search(tail)) or is_slack)
    return _reader_of(head) is not None or bool(LIST_OF_EXPORT.match(head))


def _reader_of(head: bytes) -> Any:
    head = head.removeprefix(b"\xef\xbb\xbf")
    if not head.lstrip().startswith((b"{", b"[")):
        return None
    return next((each for each in _READERS if each.recognises(head)), None)


def parse(data: bytes, name: str, parts: bool = False, earlier: Collection[str] = ()) -> Parsed:
    """Returns a conversation's turns, or the list of an export's conversations, which are parts.

    `parts`: of a long session log, the segments after the first are parts, too. `earlier`: keys of
    messages of a session log that another document holds, which are left out. Raises
    `input.unsupported_type` for a shape that no reader knows.
    """
    if data.startswith(b"PK\3\4"):
        return _listed(_zipped(packed.opened(data, name, "ZIP")))
    if data.startswith(opencode.DATABASE):
        return _listed(opencode.read(data))
    if LIST_OF_EXPORT.match(data[:200]):
        return _listed_before(data)
    reader = _reader_of(data[:4096])
    if reader is None:
        message = f"{name} is no conversation whose shape is known."
        raise KbprocError("input.unsupported_type", message)
    talks = reader.read(data)
    is_list = reader in _EXPORTS and data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if is_list or len(talks) != 1:
        return _listed(talks)
    talk = finished(talks[0], earlier)
    if talk is None:
        return Parsed(blocks=[])
    if reader not in _LOGS:
        return _parsed(talk)
    parsed = _divided(talk) if parts else _parsed(talk)
    parsed.messages = message_keys(talk)
    return parsed


def messages_in(data: bytes, name: str) -> list[tuple[Role, str, str]]:
    """Returns the messages of a session's log, whole: role, name of the tool, text.

    Raises `input.unsupported_type`.
    """
    reader = _reader_of(data[:4096])
    if reader is None or reader in _EXPORTS:
        message = f"{name} is no session's log whose shape is known."
        raise KbprocError("input.unsupported_type", message)
    is_whole = WHOLE.set(True)
    try:
        messages = [message for talk in reader.read(data) for message in talk.messages]
    finally:
        WHOLE.reset(is_whole)
    return [(message.role, message.name or "", message.text) for message in messages]


def message_keys_of(source: bytes) -> list[str]:
    """Returns the keys of the messages of a conversation as it is stored."""
    client, keys = "", list[str]()
    for record in json_lines(source, Counter()):
        client = word(record, "client") or client
        if at := word(record, "at"):
            keys.append(message_key(client, at, word(record, "role"), word(record, "text")))
    return keys


def segment_number(name: str) -> int | None:
    """Returns the number of a session's segment by its name; None for the name of another part."""
    match = _SEGMENT_NAME.fullmatch(name)
    return None if match is None else int(match[1])


def _divided(talk: ChatTranscript) -> Parsed:
    """Returns the first segment of a session; the others are parts, named by their number."""
    first, *others = segments(talk)
    parsed = _parsed(first)
    parsed.parts = [
        Part(_SEGMENT.format(number), encoded(segment)) for number, segment in enumerate(others, 2)
    ]
    return parsed


def _parsed(talk: ChatTranscript) -> Parsed:
    times = [message.at for message in talk.messages if message.at]
    facts: dict[str, Scalar] = {
        "client": talk.client,
        "session": talk.id or None,
        "project": talk.project,
        "model": talk.model,
        "started": min(times, default=None),
        "ended": max(times, default=None),
        "turns": max(message.turn for message in talk.messages),
    }
    return Parsed(
        title=talk.title,
        blocks=[block for turn in _turns(talk.messages) for block in _blocks(turn)],
        metadata={name: value for name, value in facts.items() if value is not None},
        unread=dict(talk.unread),
        source=encoded(talk),
        origin=talk.origin,
    )


def _turns(messages: Iterable[ChatMessage]) -> Iterator[list[ChatMessage]]:
    for _, turn in groupby(messages, key=lambda message: message.turn):
        yield list(turn)


def _blocks(turn: Sequence[ChatMessage]) -> Iterator[Block]:
    """Yields a block for each message; their section is the day and the turn."""
    section = section_of(turn[0].turn, next((each.at for each in turn if each.at), None))
    for message in turn:
        is_code = message.role in ("call", "result")
        text = f"{_speaker(message)}: {message.text}"
        yield Block(text=text, section=section, kind="code" if is_code else "prose")


def section_of(turn: int, at: str | None) -> str:
    """Returns the section of a turn, which tells its time: "2026-03-05 > turn 3, 14:03"."""
    return f"turn {turn}" if at is None else f"{at[:10]}{PATH}turn {turn}, {at[11:16]}"


def _speaker(message: ChatMessage) -> str:
    name = message.name
    if message.role == "user":
        return name or "User"
    if message.role == "assistant":
        return name or "Assistant"
    tool = name or "tool"
    return tool if message.role == "call" else f"{tool} output"


# ------------------------------------------------------------------------ exports


def _zipped(archive: ZipFile) -> Iterator[ChatTranscript]:
    """Yields the conversations of a ZIP. Raises `operation.failed` for a damaged one."""
    files = [file for file in archive.infolist() if not file.is_dir()]
    names = {file.filename for file in files}
    with archive:
        exports = [each for each in files if _ZIPPED.search(b"/" + each.filename.encode())]
        if exports:
            yield from _exported(_member(archive, file.filename) for file in exports)
        elif any(name.endswith("channels.json") for name in names):
            prefix = next(each for each in names if each.endswith("channels.json"))[:-13]
            yield from slack.from_files(
                {
                    name.removeprefix(prefix): _member(archive, name)
                    for name in names
                    if name.endswith(".json") and name.startswith(prefix)
                }
            )


def _exported(files: Iterable[bytes]) -> Iterator[ChatTranscript]:
    """Yields the conversations of an export's files. Raises `input.unsupported_type` for none."""
    is_known = False
    for data in files:
        reader = _reader_of(data[:4096])
        if reader in _EXPORTS:
            is_known = True
            yield from reader.read(data)
    if not is_known:
        message = "The archive's conversations.json is no export of ChatGPT or Claude."
        raise KbprocError("input.unsupported_type", message)


def _member(archive: ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except packed.BROKEN as error:
        message = f"{name} of the archive is damaged: {error}."
        raise KbprocError("operation.failed", message) from error


def _listed(talks: Iterable[ChatTranscript]) -> Parsed:
    """Returns the list of conversations as text; each of them is a part."""
    lines: list[str] = []
    records: list[bytes] = [msgspec.json.encode({"kbproc": "conversations", "version": 1}) + b"\n"]
    parts: dict[str, Part] = {}
    for talk in map(finished, talks):
        if talk is None:
            continue
        name = _part_name(talk, parts)
        parts[name] = Part(name, encoded(talk))
        at = next((message.at for message in talk.messages if message.at), None)
        lines.append(f"{at[:10]} {talk.title}" if at else talk.title)
        records.append(msgspec.json.encode({"file": name, "line": lines[-1]}) + b"\n")
    return Parsed(
        blocks=_list_blocks(lines),
        metadata={"conversations": len(lines)},
        source=b"".join(records),
        parts=list(parts.values()),
    )


def _part_name(talk: ChatTranscript, others: dict[str, Part]) -> str:
    """Returns a name from the conversation's id, which is the same at the next export."""
    base = re.sub(r"[^\w.-]+", "-", talk.id or talk.title).strip(".-")[:100] or "conversation"
    names = (f"{base}{f'-{number}' if number > 1 else ''}.jsonl" for number in range(1, 1 << 30))
    return next(name for name in names if name not in others)


def _listed_before(data: bytes) -> Parsed:
    """Returns the list of an export whose conversations were read before."""
    lines = [line for record in json_lines(data, Counter()) if (line := word(record, "line"))]
    return Parsed(blocks=_list_blocks(lines), metadata={"conversations": len(lines)}, source=data)


def _list_blocks(lines: Sequence[str]) -> list[Block]:
    blocks: list[Block] = []
    rest, size = list[str](), 0
    for line in lines:
        if rest and size + len(line) > _LISTED_CHARS:
            blocks.append(Block(text="\n".join(rest), kind="code"))
            rest, size = [], 0
        rest.append(line)
        size += len(line)
    if rest:
        blocks.append(Block(text="\n".join(rest), kind="code"))
    return blocks
