"""Turns the transcript of one answer into steps that do not depend on the reader's protocol.

A transcript is the wire's own messages of one chat, session.ask, agent.invoke or session.resume:
its events, then its response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

Message = dict[str, Any]


class Start(Struct, frozen=True, kw_only=True):
    session: int
    message: int


class ReferenceList(Struct, frozen=True, kw_only=True):
    """The references of an answer, as the wire has them."""

    references: list[Message]
    cursor: str | None


class TextStart(Struct, frozen=True, kw_only=True):
    """The beginning of a text; `n` counts from 1, since an interrupted text may be restarted."""

    n: int


class TextDelta(Struct, frozen=True, kw_only=True):
    n: int
    delta: str
    cursor: str | None


class TextEnd(Struct, frozen=True, kw_only=True):
    """The end of a text."""

    n: int


class Notice(Struct, frozen=True, kw_only=True):
    kind: str
    message: str


class AnswerEnd(Struct, frozen=True, kw_only=True):
    """The end of an answer.

    `status`: of the answer; None where only its reading ended. `error`: the wire's error.
    """

    status: str | None
    result: Message
    error: Message | None


Step = Start | ReferenceList | TextStart | TextDelta | TextEnd | Notice | AnswerEnd


def steps(transcript: Iterable[Message]) -> Iterator[Step]:
    """Yields each step as soon as its message is there."""
    reading = _Reading()
    for message in transcript:
        if "result" in message or "error" in message:
            yield from reading.ended(message)
        elif message.get("method") == "event":
            yield from reading.event(message["params"])


class _Reading:
    def __init__(self) -> None:
        self._n = 0
        self._is_open = False

    def event(self, fields: Message) -> Iterator[Step]:
        cursor = fields.get("cursor")
        match fields["type"]:
            case "init":
                yield Start(session=fields["session_id"], message=fields["message_id"])
            case "references":
                yield ReferenceList(references=fields["references"], cursor=cursor)
            case "warning":
                kind = fields.get("kind", "degraded")
                if kind == "restarted":
                    yield from self._close()
                yield Notice(kind=kind, message=fields["message"])
            case "answer":
                yield from self._answer(fields, cursor)

    def _answer(self, event: Message, cursor: str | None) -> Iterator[Step]:
        if "references" in event:  # a snapshot
            yield ReferenceList(references=event["references"], cursor=cursor)
        if "text" in event:
            yield from self._close()
        if delta := event.get("text") or event.get("delta"):
            if not self._is_open:
                self._n, self._is_open = self._n + 1, True
                yield TextStart(n=self._n)
            yield TextDelta(n=self._n, delta=delta, cursor=cursor)

    def _close(self) -> Iterator[Step]:
        if self._is_open:
            self._is_open = False
            yield TextEnd(n=self._n)

    def ended(self, response: Message) -> Iterator[Step]:
        yield from self._close()
        error = response.get("error")
        result = response.get("result", {}).get("data", {})
        answer = result if error is None else error["data"].get("detail", {})
        yield AnswerEnd(status=answer.get("status"), result=result, error=error)
