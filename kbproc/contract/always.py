"""What holds of every line, whatever a conversation is about.

Owns: the rules that are judged in all conversations: lines, schemas, ids, streams, results, errors.
Refuses to know: what a conversation asks, and when.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbproc.client.contract.kit import Kit

Message = dict[str, Any]
_TRACES = ("Traceback (most recent call last)", 'File "/', "panicked at", "\n\tat ")


class Broken(NamedTuple):
    """A rule that a line breaks."""

    rule: str
    expected: str
    came: str


@dataclass
class Told:
    """What one process said: `asked` are the ids of requests with their methods.

    `ended`: its stdin was closed and all that it had to say was read.
    """

    lines: list[bytes]
    asked: list[tuple[Any, str]]
    ended: bool = False


def key(id: Any) -> str:
    """Ids are the same only if their types are, too."""
    return json.dumps(id)


def parsed(line: bytes) -> Any:
    """None for what is no JSON in UTF-8."""
    try:
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


def is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("jsonrpc") == "2.0"


def messages(line: bytes) -> list[Message]:
    """One, or those of a batch; none in a line that is no message."""
    value = parsed(line)
    values = value if isinstance(value, list) else [value]
    return values if all(map(is_message, values)) else []


# The rules, and what each looks at. The first that a message breaks is the one that counts.
RULES = (
    "start.init_first",
    "start.init_once",
    "lines.only_messages",
    "ids.as_sent",
    "answers.once",
    "answers.every_request",
    "streams.init_first",
    "streams.index",
    "streams.response_ends",
    "results.data_and_meta",
    "errors.members",
    "errors.code",
    "errors.exit_code",
    "errors.no_internals",
    "lines.fit_schema",
)


def broken(told: Told, kit: Kit) -> Iterator[Broken]:
    """Everything that one process said wrongly."""
    for line in told.lines:
        if not messages(line):
            yield Broken("lines.only_messages", "a JSON-RPC 2.0 message a line", shown(line))
    said = [message for line in told.lines for message in messages(line)]
    yield from _beginning(said)
    yield from _answers(said, told)
    yield from _streams(said)
    methods = {key(id): method for id, method in told.asked}
    for message in said:
        yield from itertools.islice(_of_message(message, methods, kit), 1)


def _beginning(said: list[Message]) -> Iterator[Broken]:
    begins = [number for number, message in enumerate(said) if _is_process_init(message)]
    if said and begins[:1] != [0]:
        yield Broken("start.init_first", "the process's init as first line", shown(said[0]))
    for number in begins[1:]:
        yield Broken("start.init_once", "one init of the process", shown(said[number]))


def _is_process_init(message: Message) -> bool:
    event = message.get("params")
    return isinstance(event, dict) and event.get("type") == "init" and "request_id" not in event


def _answers(said: list[Message], told: Told) -> Iterator[Broken]:
    asked = Counter(key(id) for id, _ in told.asked)
    came: Counter[str] = Counter()
    for message in said:
        if "method" in message or message.get("id") is None:
            continue
        id = key(message["id"])
        came[id] += 1
        if id not in asked:
            yield Broken("ids.as_sent", f"an id that was sent: {sorted(asked)}", shown(message))
        elif came[id] > asked[id]:
            yield Broken("answers.once", f"one answer to id {id}", shown(message))
    if told.ended and said:
        for id in asked - came:
            yield Broken("answers.every_request", f"an answer to id {id}", "none, up to the end")


def _streams(said: list[Message]) -> Iterator[Broken]:
    streams: dict[str, list[Message]] = {}
    answered: set[str] = set()
    for message in said:
        event = message.get("params")
        if "method" not in message:
            answered.add(key(message.get("id")))
        elif isinstance(event, dict) and "request_id" in event:
            id = key(event["request_id"])
            if id in answered:
                yield Broken("streams.response_ends", "nothing after the response", shown(message))
            else:
                streams.setdefault(id, []).append(message)
    for events in streams.values():
        yield from itertools.islice(_stream(events), 1)


def _stream(events: list[Message]) -> Iterator[Broken]:
    types = [event["params"].get("type") for event in events]
    if types[0] != "init" or types.count("init") != 1:
        yield Broken("streams.init_first", "init once, as the stream's first event", shown(types))
    for number, event in enumerate(events):
        if event["params"].get("index") != number:
            yield Broken("streams.index", f"index {number}", shown(event))


def _of_message(message: Message, methods: dict[str, str], kit: Kit) -> Iterator[Broken]:
    if "error" in message:
        yield from _error(message, kit)
    elif "result" in message:
        yield from _result(message, methods, kit)
    elif message.get("method") == "event":
        event = message.get("params")
        name = f"event.{event.get('type')}" if isinstance(event, dict) else "event.init"
        yield from _misfit(name, event, message, kit)


def _result(message: Message, methods: dict[str, str], kit: Kit) -> Iterator[Broken]:
    result, method = message["result"], methods.get(key(message.get("id")), "")
    meta = result.get("meta") if isinstance(result, dict) else None
    if not isinstance(meta, dict) or "data" not in result:
        yield Broken("results.data_and_meta", "members data and meta", shown(message))
    elif type(meta.get("seq")) is not int or f"{method}/" not in str(meta.get("schema")):
        yield Broken(
            "results.data_and_meta", f'meta.schema "{method}/1" and meta.seq', shown(message)
        )
    elif method:
        yield from _misfit(f"{method}.result", result, message, kit)


_IN_ERRORS: dict[str, Callable[[Any], bool]] = {
    "schema": lambda value: isinstance(value, str),
    "type": lambda value: isinstance(value, str),
    "message": lambda value: isinstance(value, str) and bool(value.strip()),
    "exit_code": lambda value: type(value) is int,
    "retryable": lambda value: value in (True, False, None),
    "hint": lambda value: isinstance(value, str),
    "detail": lambda value: isinstance(value, dict),
}


def _error(message: Message, kit: Kit) -> Iterator[Broken]:
    error = message["error"]
    data = error.get("data") if isinstance(error, dict) else None
    if not isinstance(data, dict):
        yield Broken("errors.members", "error.data", shown(message))
        return
    for name, fits in _IN_ERRORS.items():
        if name not in data or not fits(data[name]):
            yield Broken("errors.members", f"error.data.{name}", shown(message))
    row = kit.errors.get(data["type"])
    if row is not None and error.get("code") != row["code"]:
        yield Broken("errors.code", f"code {row['code']} with {row['type']}", shown(message))
    if row is not None and data["exit_code"] != row["exit_code"]:
        yield Broken("errors.exit_code", f"exit_code {row['exit_code']}", shown(message))
    texts = f"{error.get('message')}\n{data['message']}\n{data['hint']}\n{data['detail']}"
    if any(trace in texts for trace in _TRACES):
        yield Broken("errors.no_internals", "no trace of the code", shown(message))
    yield from _misfit("error", error, message, kit)


def _misfit(name: str, value: Any, message: Message, kit: Kit) -> Iterator[Broken]:
    why = kit.misfit(name, value)
    if why is not None:
        yield Broken("lines.fit_schema", why, shown(message))


def shown(value: Any, most: int = 600) -> str:
    """As a line of a report."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else None
    if text is None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.rstrip("\n")
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
