"""What a client has heard of a stream.

Owns: how far an answer has come, and what to say where it is torn off.
Refuses to know: how streams are made, and who prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbproc.base.errors import KbprocError, Retry


class Heard:
    """How far a stream has come, for whoever is torn off it: an answer can be read on."""

    def __init__(self, then: Callable[[dict[str, Any]], None]) -> None:
        self._then = then
        self._answer: dict[str, Any] = {}

    def event(self, event: dict[str, Any]) -> None:
        if "session_id" in event:
            self._answer = {name: event[name] for name in ("session_id", "message_id")}
        elif "cursor" in event and self._answer:
            self._answer["after"] = event["cursor"]
        self._then(event)

    def interrupted(self) -> KbprocError:
        if not self._answer:
            return KbprocError("operation.cancelled", "Interrupted.")
        return KbprocError(
            "operation.cancelled",
            "Interrupted; the answer may go on.",
            hint="session.resume reads it on from here.",
            retry=Retry(method="session.resume", params=self._answer),
        )
