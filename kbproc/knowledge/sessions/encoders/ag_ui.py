"""An answer as a run of AG-UI 1.0.

Owns: which events tell what: a session is a thread, a question and its answer a run.
Refuses to know: HTTP.

What was said before an answer began anew stays a message of its own, since a message that was
streamed can't be taken back. The custom event `warning` of kind `restarted` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kbproc.sessions.encoders.transcript import (
    Begun,
    Closed,
    Ended,
    Message,
    Opened,
    Referred,
    Said,
    Step,
    Warned,
    steps,
)

PROTOCOL_VERSION = "1.0"


def events(transcript: Iterable[Message]) -> Iterator[Message]:
    """The events of one run, each as soon as it is known."""
    run = _Run()
    for step in steps(transcript):
        yield from run.events(step)


class _Run:
    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._message = ""

    def events(self, step: Step) -> Iterator[Message]:
        match step:
            case Begun():
                self._ids = {"threadId": str(step.session), "runId": str(step.message)}
                yield {"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}
            case Referred():
                yield self._custom("references", step.references, step.cursor)
            case Opened():
                again = "" if step.n == 1 else f".{step.n}"
                self._message = f"{self._ids['runId']}{again}"
                start = {"type": "TEXT_MESSAGE_START", "messageId": self._message}
                yield start | {"role": "assistant"}
            case Said():
                said = {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message}
                yield said | {"delta": step.delta} | _metadata(step.cursor)
            case Closed():
                yield {"type": "TEXT_MESSAGE_END", "messageId": self._message}
            case Warned():
                yield self._custom("warning", {"kind": step.kind, "message": step.message})
            case Ended():
                yield self._end(step)

    def _custom(self, name: str, value: Any, cursor: str | None = None) -> Message:
        return {"type": "CUSTOM", "name": name, "value": value} | _metadata(cursor)

    def _end(self, end: Ended) -> Message:
        if end.status in {"stopped", "interrupted"}:
            outcome = {"outcome": {"type": "cancelled"}}
            return {"type": "RUN_FINISHED", **self._ids, "result": {"status": end.status}} | outcome
        if end.error is not None:
            error = end.error
            return {"type": "RUN_ERROR", "message": error["message"], "code": error["data"]["type"]}
        names = ("status", "text", "references", "see_also")
        result = {name: end.result[name] for name in names if name in end.result}
        told = {"type": "RUN_FINISHED", **self._ids, "result": result}
        return told | {"outcome": {"type": "success"}} | _usage(end.result["usage"])


def _metadata(cursor: str | None) -> Message:
    return {"metadata": {"cursor": cursor}} if cursor else {}


def _usage(usage: Message | None) -> Message:
    """Only what is known: AG-UI has no null."""
    if usage is None:
        return {}
    names = {"provider": "answerer", "model": "model"}
    names |= {"inputTokens": "input_tokens", "outputTokens": "output_tokens"}
    known = {name: usage[ours] for name, ours in names.items() if usage[ours] is not None}
    return {"usage": [known]} if known else {}
