"""The steps that a conversation is made of; contract/README.md tells them to its authors.

Owns: what each step sends, and which message it waits for.
Refuses to know: whether what comes is right.
"""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable
from typing import Any

from kbproc.client.contract.always import key
from kbproc.client.contract.exchange import Exchange, event_of
from kbproc.client.contract.expect import mismatch, resolved

Step = dict[str, Any]


def carry_out(step: Step, exchange: Exchange) -> Any:
    """What came: an answer, an event, an array, an exit code, or None where nothing is waited
    for. Raises NotThere, Failed and Late.
    """
    return ACTIONS[action_of(step)](exchange, step)


def action_of(step: Step) -> str:
    return next(name for name in ACTIONS if name in step)


def _ask(exchange: Exchange, step: Step) -> Any:
    id = step["id"] if "id" in step else exchange.number()
    params = resolved(step.get("params", {}), exchange.kept)
    exchange.asks(id, step["ask"])
    exchange.send(_line({"jsonrpc": "2.0", "id": id, "method": step["ask"], "params": params}))
    if "until" in step:
        return exchange.wait(lambda message: _is_event(message, id, step["until"]))
    return None if step.get("leave") else _answer(exchange, id)


def _tell(exchange: Exchange, step: Step) -> Any:
    params = resolved(step.get("params", {}), exchange.kept)
    exchange.send(_line({"jsonrpc": "2.0", "method": step["tell"], "params": params}))


def _line_as_it_is(exchange: Exchange, step: Step) -> Any:
    """`asks`: ids that the line asks with, and their methods."""
    for id, method in step.get("asks", ()):
        exchange.asks(id, method)
    exchange.send(_raw(exchange, step))
    return _answer(exchange, step["answer"]) if "answer" in step else None


def _raw(exchange: Exchange, step: Step) -> bytes:
    if "bytes" in step:
        return base64.b64decode(str(step["bytes"]))
    if "line" in step:
        return str(step["line"]).encode()
    limit: int = resolved(step["over"], exchange.kept)
    head = b'{"jsonrpc":"2.0","id":"long","method":"ping","params":{"x":"'
    return head + b"x" * (limit + 1) + b'"}}'


def _batch(exchange: Exchange, step: Step) -> Any:
    """The array of its answers, or whichever of them comes alone."""
    batch = resolved(step["batch"], exchange.kept)
    ids = [one["id"] for one in batch if "id" in one]
    for one in batch:
        if "id" in one:
            exchange.asks(one["id"], one["method"])
    exchange.send(_line(batch))
    if not ids:
        return None
    return exchange.wait(lambda m: isinstance(m, list) or any(_answers(m, id) for id in ids))


def _burst(exchange: Exchange, step: Step) -> Any:
    """Many requests in one write; what the errors among the answers say."""
    ids = [f"burst-{number}" for number in range(step["times"])]
    for id in ids:
        exchange.asks(id, step["burst"])
    lines = [{"jsonrpc": "2.0", "id": id, "method": step["burst"], "params": {}} for id in ids]
    exchange.send(b"\n".join(map(_line, lines)))
    answers = [_answer(exchange, id) for id in ids]
    return [answer["error"]["data"] for answer in answers if "error" in answer]


def _await(exchange: Exchange, step: Step) -> Any:
    if "event" in step:
        where = resolved(step.get("where", {}), exchange.kept)
        return exchange.wait(
            lambda message: (
                _is_event(message, step["await"], step["event"])
                and mismatch(where, message) is None
            )
        )
    return _answer(exchange, step["await"])


def _end(exchange: Exchange, step: Step) -> Any:
    return exchange.gone(None)


def _signal(exchange: Exchange, step: Step) -> Any:
    return exchange.gone(signal.Signals[f"SIG{step['signal']}"])


def _restart(exchange: Exchange, step: Step) -> Any:
    exchange.start()


def _answer(exchange: Exchange, id: Any) -> Any:
    return exchange.wait(lambda message: _answers(message, id))


def _answers(message: Any, id: Any) -> bool:
    if not isinstance(message, dict) or "method" in message or "id" not in message:
        return False
    return key(message["id"]) == key(id)


def _is_event(message: Any, id: Any, type: str) -> bool:
    event = event_of(message)
    return event.get("type") == type and key(event.get("request_id")) == key(id)


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


ACTIONS: dict[str, Callable[[Exchange, Step], Any]] = {
    "ask": _ask,
    "tell": _tell,
    "line": _line_as_it_is,
    "bytes": _line_as_it_is,
    "over": _line_as_it_is,
    "batch": _batch,
    "burst": _burst,
    "await": _await,
    "end": _end,
    "signal": _signal,
    "restart": _restart,
}
