"""Encodes an answer as a run of AG-UI 1.0.

A session is a thread, a question with its answer is a run.

The text from before a restart stays a message of its own, since a streamed message can't be taken
back. The custom event `warning` of kind `restarted` announces the restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kbproc.knowledge.sessions.encoders.transcript import (
    AnswerEnd,
    Message,
    Notice,
    ReferenceList,
    Start,
    Step,
    TextDelta,
    TextEnd,
    TextStart,
    steps,
)

PROTOCOL_VERSION = "1.0"


def events(transcript: Iterable[Message]) -> Iterator[Message]:
    """Yields the events of one run, each as soon as it is known."""
    run = _RunState()
    for step in steps(transcript):
        yield from run.events(step)


class _RunState:
    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._message = ""

    def events(self, step: Step) -> Iterator[Message]:
        match step:
            case Start():
                self._ids = {"threadId": str(step.session), "runId": str(step.message)}
                yield {"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}
            case ReferenceList():
                yield self._custom("references", step.references, step.cursor)
            case TextStart():
                again = "" if step.n == 1 else f".{step.n}"
                self._message = f"{self._ids['runId']}{again}"
                start = {"type": "TEXT_MESSAGE_START", "messageId": self._message}
                yield start | {"role": "assistant"}
            case TextDelta():
                content = {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message}
                yield content | {"delta": step.delta} | _metadata(step.cursor)
            case TextEnd():
                yield {"type": "TEXT_MESSAGE_END", "messageId": self._message}
            case Notice():
                yield self._custom("warning", {"kind": step.kind, "message": step.message})
            case AnswerEnd():
                yield self._end(step)

    def _custom(self, name: str, value: Any, cursor: str | None = None) -> Message:
        return {"type": "CUSTOM", "name": name, "value": value} | _metadata(cursor)

    def _end(self, end: AnswerEnd) -> Message:
        if end.status in {"stopped", "interrupted"}:
            outcome = {"outcome": {"type": "cancelled"}}
            return {"type": "RUN_FINISHED", **self._ids, "result": {"status": end.status}} | outcome
        if end.error is not None:
            error = end.error
            return {"type": "RUN_ERROR", "message": error["message"], "code": error["data"]["type"]}
        names = ("status", "text", "references", "see_also")
        result = {name: end.result[name] for name in names if name in end.result}
        finished = {"type": "RUN_FINISHED", **self._ids, "result": result}
        return finished | {"outcome": {"type": "success"}} | _usage(end.result["usage"])


def _metadata(cursor: str | None) -> Message:
    return {"metadata": {"cursor": cursor}} if cursor else {}


def _usage(usage: Message | None) -> Message:
    """Returns the known members of the usage, because AG-UI has no null."""
    if usage is None:
        return {}
    names = {"provider": "answerer", "model": "model"}
    names |= {"inputTokens": "input_tokens", "outputTokens": "output_tokens"}
    members = {name: usage[ours] for name, ours in names.items() if usage[ours] is not None}
    return {"usage": [members]} if members else {}
