"""Follows how far a client has read an answer, for the error of an interrupted stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbproc.base.errors import KbprocError, Retry


class StreamProgress:
    """The progress of a stream; an interrupted client gets the call that continues the answer."""

    def __init__(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self._answer: dict[str, Any] = {}

    def event(self, event: dict[str, Any]) -> None:
        if "session_id" in event:
            self._answer = {name: event[name] for name in ("session_id", "message_id")}
        elif "cursor" in event and self._answer:
            self._answer["after"] = event["cursor"]
        self._on_event(event)

    def interrupted(self) -> KbprocError:
        if not self._answer:
            return KbprocError("operation.cancelled", "Interrupted.")
        return KbprocError(
            "operation.cancelled",
            "Interrupted; the answer may go on.",
            hint="session.resume continues from here.",
            retry=Retry(method="session.resume", params=self._answer),
        )
