"""Session logs of Claude Code: ~/.claude/projects/PROJECT/SESSION.jsonl."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from kbproc.engine.sources.parse.chats.branches import Node, left_behind
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
# Attachments that a person names in a message.
_FILES = ("file", "directory", "pdf_reference", "compact_file_reference", "mcp_resource")
_COMMAND = re.compile(r"<(command-name|command-message|command-args)>")


def recognises(head: bytes) -> bool:
    return head.startswith(b"{") and bool(_HEAD.search(head)) and bool(_SESSION.search(head))


def read(data: bytes) -> list[ChatTranscript]:
    """Returns the session without the messages of subagents, where an agent speaks in a person's
    place; an empty one for a log that is a subagent's own.
    """
    talk = ChatTranscript(client=CLIENT)
    records = list(json_lines(data, talk.unread))
    messages = [record for record in records if record.get("type") in ("user", "assistant")]
    if all(record.get("isSidechain") for record in messages):
        return [talk]
    answered, other_branches = _answered(messages), _left_behind(records)
    tools: dict[str, str] = {}
    uuids: set[str] = set()
    for record in _with_queued(records):
        kind = record.get("type")
        if kind in ("summary", "custom-title", "ai-title"):
            talk.title = word(record, "customTitle", "aiTitle", "title", "summary") or talk.title
        if members(record, "attachment").get("type") in _FILES:
            talk.unread["attachments"] += 1
        if kind not in ("user", "assistant") or (uuid := word(record, "uuid")) in uuids:
            continue
        if uuid:
            uuids.add(uuid)
        talk.id = talk.id or word(record, "sessionId")
        talk.project = talk.project or word(record, "cwd") or None
        if record.get("isSidechain"):
            talk.unread["subagent_messages"] += 1
        elif uuid in other_branches:
            talk.unread["other_branches"] += 1
        elif kind == "assistant":
            _answer(talk, record, tools)
        elif not record.get("isMeta") and not record.get("isCompactSummary"):
            _question(talk, record, tools, is_answered=id(record) in answered)
    return [talk]


def _left_behind(records: list[Json]) -> set[str]:
    """Returns the uuids of the messages that a person went back from."""
    nodes: list[Node] = []
    leaf = ""
    for record in records:
        uuid, kind = word(record, "uuid"), record.get("type")
        if not uuid or record.get("isSidechain"):
            continue
        parent = word(record, "parentUuid", "logicalParentUuid")
        begins, is_question = None, False
        if kind == "assistant":
            if not parent:
                return set()  # a log without a tree
            begins = word(members(record, "message"), "id") or uuid
        elif kind == "user" and _is_question(record):
            begins, is_question = uuid, True
        nodes.append(Node(uuid, parent, begins, is_root=is_question))
        leaf = uuid if kind in ("user", "assistant") else leaf
    return left_behind(nodes, leaf)


def _is_question(record: Json) -> bool:
    """Returns True for a message that a person wrote."""
    parts = objects(members(record, "message").get("content"))
    is_result = any(part.get("type") == "tool_result" for part in parts)
    return not (is_result or record.get("isMeta") or record.get("isCompactSummary"))


def _with_queued(records: list[Json]) -> Iterator[Json]:
    """Yields the records; what a person typed while the agent worked becomes a question.

    The client hands these over while the agent works, and writes them as attachments; before, it
    noted only that one entered its queue and was removed from it.
    """
    attached = {text for record in records if (text := _prompt(_queued(record)))}
    queue: deque[Json] = deque()
    for record in records:
        operation = record.get("operation") if record.get("type") == "queue-operation" else None
        if operation == "enqueue":
            queue.append(record)
        elif operation == "popAll":
            queue.clear()
        elif operation in ("dequeue", "remove") and queue:
            first = queue.popleft()
            prompt = word(first, "content").strip()
            if operation == "remove" and prompt and prompt not in attached:
                yield _as_question({**first, **record}, prompt)
                continue
        queued = _queued(record)
        yield _as_question(record, queued.get("prompt")) if queued else record


def _queued(record: Json) -> Json:
    """Returns the attachment with what a person typed while the agent worked; {} for others."""
    attachment = members(record, "attachment")
    is_human = members(attachment, "origin").get("kind", "human") == "human"
    is_prompt = attachment.get("commandMode", "prompt") == "prompt"
    is_queued = attachment.get("type") == "queued_command" and not attachment.get("isMeta")
    return attachment if is_queued and is_human and is_prompt else {}


def _prompt(attachment: Json) -> str:
    prompt = attachment.get("prompt")
    parts = (
        [prompt] if isinstance(prompt, str) else [word(each, "text") for each in objects(prompt)]
    )
    return "\n\n".join(filter(None, parts)).strip()


def _as_question(record: Json, content: object) -> Json:
    return {**record, "type": "user", "message": {"content": content}}


def _answered(messages: list[Json]) -> set[int]:
    """Returns the identities of the messages after which the model speaks."""
    utterances = [record for record in messages if not record.get("isMeta")]
    return {id(one) for one, other in pairwise(utterances) if other.get("type") == "assistant"}


def _question(
    talk: ChatTranscript, record: Json, tools: dict[str, str], *, is_answered: bool
) -> None:
    content, at = members(record, "message").get("content"), record.get("timestamp")
    for part in objects(content):
        if part.get("type") == "tool_result":
            name = tools.get(word(part, "tool_use_id"))
            talk.say("result", part.get("content"), at=at, name=name)
    if isinstance(content, list):
        content = [part for part in objects(content) if part.get("type") != "tool_result"]
    talk.add("user", written(talk.text_of(content), is_answered=is_answered), at=at)


def written(text: str, *, is_answered: bool) -> str:
    """Returns what a person wrote; a command as it was typed, or "" for one to the client alone."""
    text = _without_added(text)
    if "<command-name>" not in text:
        return text
    if not is_answered:
        return ""
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
