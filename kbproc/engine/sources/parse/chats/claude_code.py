"""Session logs of Claude Code: ~/.claude/projects/PROJECT/SESSION.jsonl."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    json_lines,
    members,
    objects,
    word,
)

CLIENT = "claude-code"
_HEAD = re.compile(
    rb'"(?:parentUuid|leafUuid|isSidechain)"\s*:'
    rb'|"type"\s*:\s*"(?:file-history-snapshot|queue-operation|permission-mode|last-prompt'
    rb'|custom-title|ai-title|agent-name|bridge-session)"'
)
_SESSION = re.compile(rb'"(?:sessionId|leafUuid|messageId)"\s*:\s*"[0-9a-f-]{36}"')
# Additions of the client to a person's text.
_ADDED = re.compile(
    r"<(system-reminder|local-command-stdout|local-command-stderr|local-command-caveat"
    r"|ide_opened_file|ide_selection|task-notification)>"
)
_COMMAND = re.compile(r"<(command-name|command-message|command-args)>")


def recognises(head: bytes) -> bool:
    return head.startswith(b"{") and bool(_HEAD.search(head)) and bool(_SESSION.search(head))


def read(data: bytes) -> list[ChatTranscript]:
    """Returns the session. Messages of subagents are left out where their log is not theirs."""
    talk = ChatTranscript(client=CLIENT)
    records = list(json_lines(data, talk.unread))
    messages = [record for record in records if record.get("type") in ("user", "assistant")]
    is_subagents = all(record.get("isSidechain") for record in messages)
    tools: dict[str, str] = {}
    uuids: set[str] = set()
    for record in records:
        kind = record.get("type")
        if kind in ("summary", "custom-title", "ai-title"):
            talk.title = word(record, "customTitle", "aiTitle", "title", "summary") or talk.title
        if kind not in ("user", "assistant") or (uuid := word(record, "uuid")) in uuids:
            continue
        if uuid:
            uuids.add(uuid)
        talk.id = talk.id or word(record, "agentId" if is_subagents else "sessionId", "sessionId")
        talk.project = talk.project or word(record, "cwd") or None
        if record.get("isSidechain") and not is_subagents:
            talk.unread["subagent_messages"] += 1
        elif kind == "assistant":
            _answer(talk, record, tools)
        elif not record.get("isMeta") and not record.get("isCompactSummary"):
            _question(talk, record, tools)
    return [talk]


def _question(talk: ChatTranscript, record: Json, tools: dict[str, str]) -> None:
    content, at = members(record, "message").get("content"), record.get("timestamp")
    for part in objects(content):
        if part.get("type") == "tool_result":
            name = tools.get(word(part, "tool_use_id"))
            talk.say("result", part.get("content"), at=at, name=name)
    if isinstance(content, list):
        content = [part for part in objects(content) if part.get("type") != "tool_result"]
    talk.add("user", written(talk.text_of(content)), at=at)


def written(text: str) -> str:
    """Returns what a person wrote; a command as it was typed."""
    text = _without_added(text)
    if "<command-name>" not in text:
        return text
    parts = [
        text[passage.begin : passage.end].strip()
        for passage in _passages(text, _COMMAND)
        if passage.tag != "command-message"
    ]
    return " ".join(part for part in parts if part)


def _without_added(text: str) -> str:
    parts: list[str] = []
    at = 0
    for passage in _passages(text, _ADDED):
        parts.append(text[at : passage.start])
        at = passage.after
    return "".join([*parts, text[at:]])


class _Passage(NamedTuple):
    """A text between two tags: from `begin` to `end`, and with its tags from `start` to `after`."""

    tag: str
    start: int
    begin: int
    end: int
    after: int


def _passages(text: str, opening: re.Pattern[str]) -> Iterator[_Passage]:
    """Yields the passages of these tags; a tag that is not closed begins none.

    No place is looked at twice for the same tag, because a text may hold many openings.
    """
    unclosed: set[str] = set()
    at = 0
    while match := opening.search(text, at):
        at, tag = match.end(), match[1]
        end = -1 if tag in unclosed else text.find(f"</{tag}>", at)
        if end < 0:
            unclosed.add(tag)
            continue
        begin, at = at, end + len(f"</{tag}>")
        yield _Passage(tag, match.start(), begin, end, at)


def _answer(talk: ChatTranscript, record: Json, tools: dict[str, str]) -> None:
    message, at = members(record, "message"), record.get("timestamp")
    model = word(message, "model")
    talk.model = model if model and model != "<synthetic>" else talk.model
    content = message.get("content")
    for part in [content] if isinstance(content, str) else objects(content):
        if isinstance(part, dict) and part.get("type") == "tool_use":
            tools[word(part, "id")] = word(part, "name")
            talk.call(word(part, "name"), part.get("input"), at=at)
        else:
            talk.say("assistant", part, at=at)
