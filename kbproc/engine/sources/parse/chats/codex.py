"""Session logs of Codex: ~/.codex/sessions/YEAR/MONTH/DAY/rollout-….jsonl."""

from __future__ import annotations

import re

import msgspec

from kbproc.engine.sources.parse import json_values
from kbproc.engine.sources.parse.chats.turns import (
    ChatTranscript,
    Json,
    json_lines,
    members,
    word,
)

CLIENT = "codex"
_HEAD = re.compile(
    rb'\s*\{\s*(?:"timestamp"\s*:\s*"[^"]{10,40}"\s*,\s*"type"\s*:\s*"session_meta"'
    rb'|"id"\s*:\s*"[0-9a-f-]{36}"\s*,\s*"timestamp"\s*:\s*"[^"]{10,40}"\s*,\s*"(?:instructions|git)")'
)
# Messages of the client under the role of a user.
_ADDED = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|turn_aborted|permissions instructions|skill"
    r"|INSTRUCTIONS|subagent_notification|user_shell_command)\b|# AGENTS\.md instructions)",
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")


def recognises(head: bytes) -> bool:
    return bool(_HEAD.match(head))


def read(data: bytes) -> list[ChatTranscript]:
    talk = ChatTranscript(client=CLIENT)
    tools: dict[str, str] = {}
    for record in json_lines(data, talk.unread):
        kind, payload, at = record.get("type"), members(record, "payload"), record.get("timestamp")
        if kind == "session_meta" or (kind is None and "id" in record):
            head = payload or record
            if "subagent" in members(head, "source"):  # an agent speaks there in a person's place
                return [ChatTranscript(client=CLIENT)]
            talk.id = talk.id or word(head, "id")
            talk.project = talk.project or word(head, "cwd") or None
        elif kind == "turn_context":
            talk.model = word(payload, "model") or talk.model
            talk.project = talk.project or word(payload, "cwd") or None
        elif kind == "response_item":
            _add(talk, payload, at, tools)
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            turns = payload.get("num_turns")
            talk.take_back(turns if isinstance(turns, int) else 1)
        elif kind not in ("event_msg", "compacted"):
            _add(talk, record, at, tools)  # the older shape, without an envelope
    return [talk]


def _add(talk: ChatTranscript, item: Json, at: object, tools: dict[str, str]) -> None:
    kind = item.get("type")
    if kind == "message":
        _say(talk, item, at)
    elif kind == "reasoning":
        talk.unread["thoughts"] += 1
    elif kind in _CALLS:
        action = members(item, "action")
        name = word(item, "name") or str(kind).removesuffix("_call")
        tools[word(item, "call_id", "id")] = name
        arguments = item.get("arguments", item.get("input", action.get("command", action)))
        talk.call(name, _joined(arguments), at=at)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = _output(item.get("output"))
        talk.say("result", output, at=at, name=tools.get(word(item, "call_id")))


def _say(talk: ChatTranscript, item: Json, at: object) -> None:
    role = item.get("role")
    if role == "assistant":
        talk.say("assistant", item.get("content"), at=at)
    elif role == "user":
        content = item.get("content")
        parts = content if isinstance(content, list) else [content]
        parts = [part for part in parts if not _ADDED.match(_text(part))]
        talk.say("user", parts, at=at)


def _text(part: object) -> str:
    return part if isinstance(part, str) else word(members(part), "text")


def _joined(value: object) -> object:
    """Returns a command of several words as one line."""
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _output(value: object) -> object:
    """Returns the output of a tool, which older versions wrap in JSON with its exit code."""
    if isinstance(value, str) and value.startswith('{"output":'):
        try:
            return json_values.decode(value)["output"]
        except (msgspec.DecodeError, RecursionError):
            return value
    return word(value, "content") or value if isinstance(value, dict) else value
