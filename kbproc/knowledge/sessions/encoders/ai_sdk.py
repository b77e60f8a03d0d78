"""An answer as the AI SDK's UI message stream.

Owns: which chunks tell what. They are those of `ai` 5 to 7.
Refuses to know: HTTP. A server sends them with `x-vercel-ai-ui-message-stream: v1`.

What was said before an answer began anew stays a text part of its own: the protocol takes nothing
back. A `data-warning` of kind `restarted` stands between the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

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

_REASONS = {"finished": "stop", "refused": "other"}


def chunks(transcript: Iterable[Message]) -> Iterator[Message]:
    """The chunks of one message, each as soon as it is known."""
    for step in steps(transcript):
        yield from _chunks(step)


def as_sse(made: Iterable[Message]) -> Iterator[bytes]:
    """The chunks as server-sent events, with the end that the AI SDK waits for."""
    for chunk in made:
        yield b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _chunks(step: Step) -> Iterator[Message]:
    match step:
        case Begun():
            where = {"session_id": step.session, "message_id": step.message}
            yield {"type": "start", "messageId": str(step.message), "messageMetadata": where}
        case Referred():
            yield from map(_source, step.references)
            if step.cursor:
                yield {"type": "message-metadata", "messageMetadata": {"cursor": step.cursor}}
        case Opened():
            yield {"type": "text-start", "id": str(step.n)}
        case Said():
            of_ours = {"providerMetadata": {"kbproc": {"cursor": step.cursor}}}
            yield {"type": "text-delta", "id": str(step.n), "delta": step.delta} | (
                of_ours if step.cursor else {}
            )
        case Closed():
            yield {"type": "text-end", "id": str(step.n)}
        case Warned():
            told = {"kind": step.kind, "message": step.message}
            yield {"type": "data-warning", "data": told}
        case Ended():
            yield from _end(step)


def _source(reference: Message) -> Message:
    return {
        "type": "source-document",
        "sourceId": str(reference["n"]),
        "mediaType": "text/plain",
        "title": reference["cite"],
        "providerMetadata": {"kbproc": reference},
    }


def _end(end: Ended) -> Iterator[Message]:
    if end.status in {"stopped", "interrupted"}:
        yield {"type": "abort", "reason": end.status}
        return
    told: Message = {name: end.result[name] for name in ("status", "usage") if name in end.result}
    if end.error is not None:
        yield {"type": "error", "errorText": end.error["message"]}
        told = {"status": end.status, "error": end.error["data"]["type"]}
    reason = "error" if end.error is not None else _REASONS.get(str(end.status), "other")
    yield {"type": "finish", "finishReason": reason, "messageMetadata": told}
