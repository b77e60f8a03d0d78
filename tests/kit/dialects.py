"""The four protocols between coding agents and models: reads requests, writes answers.

Each protocol turns its requests into an `Ask`, and writes a tool call or a text in its own format.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Message = dict[str, Any]
Event = tuple[str | None, Any]  # the event's name, where the protocol has one, and its data

_ids = itertools.count(1)


class Tool(NamedTuple):
    """A tool as the agent offers it to its model. `namespace`: its group, in Codex only."""

    name: str
    declaration: Message
    namespace: str | None = None


class Result(NamedTuple):
    """The result of a call. `tool`: the tool's name, prefixed by its namespace if it has one."""

    tool: str
    text: str


class Ask(NamedTuple):
    """One request of an agent. `results`: of all calls in the conversation, in order."""

    tools: list[Tool]
    results: list[Result]
    is_streamed: bool


class Reply(NamedTuple):
    """A text; with `tool`, a call of that tool."""

    text: str
    tool: Tool | None = None
    arguments: Message = {}


class Dialect(NamedTuple):
    """`read` parses a request; `stream` and `whole` write an answer, in parts or at once."""

    path: re.Pattern[str]
    read: Callable[[Message, str], Ask]
    stream: Callable[[Reply], Iterator[Event]]
    whole: Callable[[Reply], Message]


def _text(content: Any) -> str:
    """Returns the text of a result from any of its wrappings."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content)
    if isinstance(content, dict):
        for name in ("text", "output", "content", "error", "functionResponse", "response"):
            if name in content:
                return _text(content[name])
    return json.dumps(content, ensure_ascii=False)


# --------------------------------------------------------------------- Anthropic Messages


def _read_messages(body: Message, path: str) -> Ask:
    parts = [
        part
        for message in body.get("messages", [])
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    names = {part["id"]: part["name"] for part in parts if part["type"] == "tool_use"}
    results = [
        Result(names[part["tool_use_id"]], _text(part.get("content")))
        for part in parts
        if part["type"] == "tool_result"
    ]
    tools = [Tool(tool["name"], tool) for tool in body.get("tools", [])]
    return Ask(tools, results, bool(body.get("stream")))


def _block(reply: Reply) -> Message:
    if reply.tool is None:
        return {"type": "text", "text": reply.text}
    name, arguments = reply.tool.name, reply.arguments
    return {"type": "tool_use", "id": f"toolu_{next(_ids)}", "name": name, "input": arguments}


def _whole_messages(reply: Reply) -> Message:
    return {
        "id": f"msg_{next(_ids)}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [_block(reply)],
        "stop_reason": "end_turn" if reply.tool is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _stream_messages(reply: Reply) -> Iterator[Event]:
    whole = _whole_messages(reply)
    block = whole["content"][0]
    if reply.tool is None:
        delta = {"type": "text_delta", "text": block["text"]}
        block = {**block, "text": ""}
    else:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        block = {**block, "input": {}}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    for event in (
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ):
        yield event["type"], event


# ----------------------------------------------------------------------- OpenAI Responses


def _tools_of_responses(tools: list[Message]) -> Iterator[Tool]:
    for tool in tools:
        if tool["type"] == "namespace":
            for inner in tool["tools"]:
                yield Tool(inner["name"], inner, tool["name"])
        elif "name" in tool:
            yield Tool(tool["name"], tool)


def _read_responses(body: Message, path: str) -> Ask:
    items = body["input"] if isinstance(body["input"], list) else []
    names = {
        item["call_id"]: item.get("namespace", "") + item["name"]
        for item in items
        if item["type"] == "function_call"
    }
    results = [
        Result(names[item["call_id"]], _text(item["output"]))
        for item in items
        if item["type"] == "function_call_output"
    ]
    return Ask(list(_tools_of_responses(body.get("tools", []))), results, bool(body.get("stream")))


def _item(reply: Reply) -> Message:
    id = next(_ids)
    if reply.tool is None:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        return {"type": "message", "id": f"msg_{id}", "role": "assistant", "content": content}
    group = {} if reply.tool.namespace is None else {"namespace": reply.tool.namespace}
    return {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": f"call_{id}",
        "name": reply.tool.name,
        **group,
        "arguments": json.dumps(reply.arguments),
    }


def _whole_responses(reply: Reply) -> Message:
    return {
        "id": f"resp_{next(_ids)}",
        "object": "response",
        "status": "completed",
        "model": "scripted",
        "output": [_item(reply)],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def _stream_responses(reply: Reply) -> Iterator[Event]:
    whole = _whole_responses(reply)
    begun = {**whole, "status": "in_progress", "output": []}
    for event in (
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]},
        {"type": "response.completed", "response": whole},
    ):
        yield event["type"], event


# ---------------------------------------------------------------- OpenAI Chat Completions


def _read_chat(body: Message, path: str) -> Ask:
    names = {
        call["id"]: call["function"]["name"]
        for message in body["messages"]
        for call in message.get("tool_calls") or ()
    }
    results = [
        Result(names[message["tool_call_id"]], _text(message["content"]))
        for message in body["messages"]
        if message["role"] == "tool"
    ]
    tools = [Tool(tool["function"]["name"], tool) for tool in body.get("tools", [])]
    return Ask(tools, results, bool(body.get("stream")))


def _spoken(reply: Reply) -> tuple[Message, str]:
    """Returns a message and its finish reason."""
    if reply.tool is None:
        return {"role": "assistant", "content": reply.text}, "stop"
    call = {
        "index": 0,
        "id": f"call_{next(_ids)}",
        "type": "function",
        "function": {"name": reply.tool.name, "arguments": json.dumps(reply.arguments)},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _head(kind: str) -> Message:
    return {"id": f"chat_{next(_ids)}", "object": kind, "created": 1, "model": "scripted"}


def _whole_chat(reply: Reply) -> Message:
    message, reason = _spoken(reply)
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {**_head("chat.completion"), "choices": [choice], "usage": _USAGE}


def _stream_chat(reply: Reply) -> Iterator[Event]:
    message, reason = _spoken(reply)
    head = _head("chat.completion.chunk")
    for delta, end in ((message, None), ({}, reason)):
        yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
    yield None, {**head, "choices": [], "usage": _USAGE}
    yield None, "[DONE]"


# --------------------------------------------------------------------------------- Gemini


def _read_gemini(body: Message, path: str) -> Ask:
    declared = [
        declaration
        for group in body.get("tools", [])
        for declaration in group.get("functionDeclarations", [])
    ]
    parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    results = [Result(answer["name"], _text(answer)) for answer in answers]
    tools = [Tool(declaration["name"], declaration) for declaration in declared]
    return Ask(tools, results, "streamGenerateContent" in path)


def _whole_gemini(reply: Reply) -> Message:
    part: Message = {"text": reply.text}
    if reply.tool is not None:
        part = {"functionCall": {"name": reply.tool.name, "args": reply.arguments}}
    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }


DIALECTS = (
    Dialect(re.compile(r"/v1/messages(\?|$)"), _read_messages, _stream_messages, _whole_messages),
    Dialect(re.compile(r"/v1/responses$"), _read_responses, _stream_responses, _whole_responses),
    Dialect(re.compile(r"/chat/completions$"), _read_chat, _stream_chat, _whole_chat),
    Dialect(
        re.compile(r":(streamG|g)enerateContent"),
        _read_gemini,
        lambda reply: iter([(None, _whole_gemini(reply))]),
        _whole_gemini,
    ),
)
