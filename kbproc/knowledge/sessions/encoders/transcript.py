"""What a reader is told of one answer, step by step, whoever the reader is.

Owns: which text an answer consists of by now, and how it ended.
Refuses to know: any other protocol's words (ai_sdk.py, ag_ui.py).

A transcript is the wire's own messages of one chat, session.ask, agent.invoke or session.resume:
its events, then its response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

Message = dict[str, Any]


class Begun(Struct, frozen=True, kw_only=True):
    session: int
    message: int


class Referred(Struct, frozen=True, kw_only=True):
    """`references`: as the wire has them."""

    references: list[Message]
    cursor: str | None


class Opened(Struct, frozen=True, kw_only=True):
    """Text begins; `n` counts from 1, as what was cut off may begin anew."""

    n: int


class Said(Struct, frozen=True, kw_only=True):
    n: int
    delta: str
    cursor: str | None


class Closed(Struct, frozen=True, kw_only=True):
    """No more comes of this text."""

    n: int


class Warned(Struct, frozen=True, kw_only=True):
    kind: str
    message: str


class Ended(Struct, frozen=True, kw_only=True):
    """`status`: of the answer; None where only its reading ended. `error`: the wire's error."""

    status: str | None
    result: Message
    error: Message | None


Step = Begun | Referred | Opened | Said | Closed | Warned | Ended


def steps(transcript: Iterable[Message]) -> Iterator[Step]:
    """Each step as soon as its message is there."""
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

    def event(self, told: Message) -> Iterator[Step]:
        cursor = told.get("cursor")
        match told["type"]:
            case "init":
                yield Begun(session=told["session_id"], message=told["message_id"])
            case "references":
                yield Referred(references=told["references"], cursor=cursor)
            case "warning":
                kind = told.get("kind", "degraded")
                if kind == "restarted":
                    yield from self._close()
                yield Warned(kind=kind, message=told["message"])
            case "answer":
                yield from self._answer(told, cursor)

    def _answer(self, told: Message, cursor: str | None) -> Iterator[Step]:
        if "references" in told:  # a snapshot
            yield Referred(references=told["references"], cursor=cursor)
        if "text" in told:
            yield from self._close()
        if said := told.get("text") or told.get("delta"):
            if not self._is_open:
                self._n, self._is_open = self._n + 1, True
                yield Opened(n=self._n)
            yield Said(n=self._n, delta=said, cursor=cursor)

    def _close(self) -> Iterator[Step]:
        if self._is_open:
            self._is_open = False
            yield Closed(n=self._n)

    def ended(self, response: Message) -> Iterator[Step]:
        yield from self._close()
        error = response.get("error")
        result = response.get("result", {}).get("data", {})
        told = result if error is None else error["data"].get("detail", {})
        yield Ended(status=told.get("status"), result=result, error=error)
