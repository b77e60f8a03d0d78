"""Encodes an answer as the AI SDK's UI message stream, with the chunks of `ai` 5 to 7.

The text from before a restart stays a text part of its own, because the protocol can't take text
back. A `data-warning` of kind `restarted` stands between the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

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

_REASONS = {"finished": "stop", "refused": "other"}


def chunks(transcript: Iterable[Message]) -> Iterator[Message]:
    """Yields the chunks of one message, each as soon as it is known."""
    for step in steps(transcript):
        yield from _chunks(step)


def as_sse(chunks: Iterable[Message]) -> Iterator[bytes]:
    """Yields the chunks as server-sent events, with the end that the AI SDK waits for."""
    for chunk in chunks:
        yield b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _chunks(step: Step) -> Iterator[Message]:
    match step:
        case Start():
            ids = {"session_id": step.session, "message_id": step.message}
            yield {"type": "start", "messageId": str(step.message), "messageMetadata": ids}
        case ReferenceList():
            yield from map(_source, step.references)
            if step.cursor:
                yield {"type": "message-metadata", "messageMetadata": {"cursor": step.cursor}}
        case TextStart():
            yield {"type": "text-start", "id": str(step.n)}
        case TextDelta():
            metadata = {"providerMetadata": {"kbproc": {"cursor": step.cursor}}}
            yield {"type": "text-delta", "id": str(step.n), "delta": step.delta} | (
                metadata if step.cursor else {}
            )
        case TextEnd():
            yield {"type": "text-end", "id": str(step.n)}
        case Notice():
            data = {"kind": step.kind, "message": step.message}
            yield {"type": "data-warning", "data": data}
        case AnswerEnd():
            yield from _end(step)


def _source(reference: Message) -> Message:
    return {
        "type": "source-document",
        "sourceId": str(reference["n"]),
        "mediaType": "text/plain",
        "title": reference["cite"],
        "providerMetadata": {"kbproc": reference},
    }


def _end(end: AnswerEnd) -> Iterator[Message]:
    if end.status in {"stopped", "interrupted"}:
        yield {"type": "abort", "reason": end.status}
        return
    metadata: Message = {
        name: end.result[name] for name in ("status", "usage") if name in end.result
    }
    if end.error is not None:
        yield {"type": "error", "errorText": end.error["message"]}
        metadata = {"status": end.status, "error": end.error["data"]["type"]}
    reason = "error" if end.error is not None else _REASONS.get(str(end.status), "other")
    yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}
