"""Rules that hold for every line, whatever the conversation is about.

They cover lines, schemas, ids, streams, results and errors.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kbproc.contract.kit import Kit

Message = dict[str, Any]
_TRACES = ("Traceback (most recent call last)", 'File "/', "panicked at", "\n\tat ")


class Violation(NamedTuple):
    """A rule that a line breaks."""

    rule: str
    expected: str
    came: str


@dataclass
class ProcessOutput:
    """The lines that one process wrote, and the ids and methods of the requests that it got.

    `ended`: its stdin was closed and its output was read to the end. `unrequested_ids`: ids of
    answers to lines that are not requests; `optional_ids`: ids of requests that may go unanswered.
    Other rules judge these.
    """

    lines: list[bytes]
    requests: list[tuple[Any, str]]
    ended: bool = False
    unrequested_ids: list[Any] = field(default_factory=list)
    optional_ids: list[Any] = field(default_factory=list)


def key(id: Any) -> str:
    """Returns the id as JSON: two ids are the same only if their types are the same, too."""
    return json.dumps(id)


def parsed(line: bytes) -> Any:
    """Returns the line's JSON value; None if it is not JSON in UTF-8."""
    try:
        return json.loads(line.decode("utf-8"), parse_constant=int)  # NaN is no JSON
    except (ValueError, RecursionError):
        return None


def is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("jsonrpc") == "2.0"


def messages(line: bytes) -> list[Message]:
    """Returns the line's message, or those of a batch; nothing if the line holds anything else."""
    value = parsed(line)
    values = value if isinstance(value, list) else [value]
    return values if all(map(is_message, values)) else []


# Each message counts for the first rule that it breaks.
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


def violations(output: ProcessOutput, kit: Kit) -> Iterator[Violation]:
    """Yields every violation in the output of one process."""
    for line in output.lines:
        if not messages(line):
            yield Violation("lines.only_messages", "a JSON-RPC 2.0 message a line", shown(line))
    sent = [message for line in output.lines for message in messages(line)]
    yield from _beginning(sent)
    yield from _answers(sent, output)
    yield from _streams(sent)
    methods = {key(id): method for id, method in output.requests}
    for message in sent:
        yield from itertools.islice(_of_message(message, methods, kit), 1)


def exercised(output: ProcessOutput) -> set[str]:
    """Returns the rules that the output gave an occasion to break.

    What never happened shows nothing: who sends no error keeps no rule about errors.
    """
    sent = [message for line in output.lines for message in messages(line)]
    events = [message.get("params") for message in sent if message.get("method") == "event"]
    kinds = {
        "start.": bool(output.lines),
        "lines.": bool(output.lines),
        "ids.": any("method" not in message for message in sent),
        "answers.once": any("method" not in message for message in sent),
        "answers.every_request": output.ended and bool(output.requests),
        "streams.": any(isinstance(event, dict) and "request_id" in event for event in events),
        "results.": any("result" in message for message in sent),
        "errors.": any("error" in message for message in sent),
    }
    return {
        rule for rule in RULES if any(rule.startswith(k) for k, is_so in kinds.items() if is_so)
    }


def _beginning(sent: list[Message]) -> Iterator[Violation]:
    begins = [number for number, message in enumerate(sent) if _is_process_init(message)]
    if sent and begins[:1] != [0]:
        yield Violation("start.init_first", "the process's init as first line", shown(sent[0]))
    for number in begins[1:]:
        yield Violation("start.init_once", "one init of the process", shown(sent[number]))


def _is_process_init(message: Message) -> bool:
    event = message.get("params")
    return isinstance(event, dict) and event.get("type") == "init" and "request_id" not in event


def _answers(sent: list[Message], output: ProcessOutput) -> Iterator[Violation]:
    requests = Counter(key(id) for id, _ in output.requests)
    unrequested = set(map(key, (*output.unrequested_ids, *output.optional_ids)))
    answers: Counter[str] = Counter()
    for message in sent:
        if "method" in message or message.get("id") is None or key(message["id"]) in unrequested:
            continue
        id = key(message["id"])
        answers[id] += 1
        if id not in requests:
            yield Violation(
                "ids.as_sent", f"an id that was sent: {sorted(requests)}", shown(message)
            )
        elif answers[id] > requests[id]:
            yield Violation("answers.once", f"one answer to id {id}", shown(message))
    if output.ended and sent:
        requests.subtract(answers)
        requests -= Counter(unrequested)
        for id in +requests:
            yield Violation("answers.every_request", f"an answer to id {id}", "none, up to the end")


def _streams(sent: list[Message]) -> Iterator[Violation]:
    streams: dict[str, list[Message]] = {}
    answered: set[str] = set()
    for message in sent:
        event = message.get("params")
        if "method" not in message:
            answered.add(key(message.get("id")))
        elif isinstance(event, dict) and "request_id" in event:
            id = key(event["request_id"])
            if id in answered:
                yield Violation(
                    "streams.response_ends", "nothing after the response", shown(message)
                )
            else:
                streams.setdefault(id, []).append(message)
    for events in streams.values():
        yield from itertools.islice(_stream(events), 1)


def _stream(events: list[Message]) -> Iterator[Violation]:
    types = [event["params"].get("type") for event in events]
    if types[0] != "init" or types.count("init") != 1:
        yield Violation(
            "streams.init_first", "init once, as the stream's first event", shown(types)
        )
    for number, event in enumerate(events):
        if event["params"].get("index") != number:
            yield Violation("streams.index", f"index {number}", shown(event))


def _of_message(message: Message, methods: dict[str, str], kit: Kit) -> Iterator[Violation]:
    if "error" in message:
        yield from _error(message, kit)
    elif "result" in message:
        yield from _result(message, methods, kit)
    elif message.get("method") == "event":
        event = message.get("params")
        if _is_process_init(message):
            yield from _init(message, kit)
        elif isinstance(event, dict):
            variant = "#StreamInit" if event.get("type") == "init" else ""
            yield from _misfit(f"event.{event.get('type')}{variant}", event, message, kit)
        else:
            yield Violation("lines.fit_schema", "params of an event", shown(message))


def _init(message: Message, kit: Kit) -> Iterator[Violation]:
    why = kit.misfit("event.init#ProcessInit", message["params"])
    if why is not None:
        is_protocol = any(name in why for name in ("protocol", "max_line_bytes", "max_in_flight"))
        rule = "start.protocol" if is_protocol else "lines.fit_schema"
        yield Violation(rule, why, shown(message))


def _result(message: Message, methods: dict[str, str], kit: Kit) -> Iterator[Violation]:
    result, method = message["result"], methods.get(key(message.get("id")), "")
    meta = result.get("meta") if isinstance(result, dict) else None
    if not isinstance(meta, dict) or "data" not in result:
        yield Violation("results.data_and_meta", "members data and meta", shown(message))
    elif type(meta.get("seq")) is not int or f"{method}/" not in str(meta.get("schema")):
        yield Violation(
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


def _error(message: Message, kit: Kit) -> Iterator[Violation]:
    error = message["error"]
    data = error.get("data") if isinstance(error, dict) else None
    if not isinstance(data, dict):
        yield Violation("errors.members", "error.data", shown(message))
        return
    for name, fits in _IN_ERRORS.items():
        if name not in data or not fits(data[name]):
            yield Violation("errors.members", f"error.data.{name}", shown(message))
    row = kit.errors.get(data["type"])
    if row is not None and error.get("code") != row["code"]:
        yield Violation("errors.code", f"code {row['code']} with {row['type']}", shown(message))
    if row is not None and data["exit_code"] != row["exit_code"]:
        yield Violation("errors.exit_code", f"exit_code {row['exit_code']}", shown(message))
    texts = f"{error.get('message')}\n{data['message']}\n{data['hint']}\n{data['detail']}"
    if any(trace in texts for trace in _TRACES):
        yield Violation("errors.no_internals", "no trace of the code", shown(message))
    yield from _misfit("error", error, message, kit)


def _misfit(name: str, value: Any, message: Message, kit: Kit) -> Iterator[Violation]:
    why = kit.misfit(name, value)
    if why is not None:
        lacks_cursor = why.startswith('"cursor" is a required property')
        rule = "sessions.cursors" if lacks_cursor else "lines.fit_schema"
        yield Violation(rule, why, shown(message))


def shown(value: Any, most: int = 600) -> str:
    """Returns the value as text for a report, cut to `most` characters."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else None
    if text is None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.rstrip("\n")
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
