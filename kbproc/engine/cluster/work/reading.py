"""Parses documents for nodes: a worker gets a document from its node and sends the chunks back.

Processes with limited rights parse it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import msgspec
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.work import messages
from kbproc.engine.cluster.work.lending import PIECE_BYTES
from kbproc.engine.cluster.work.messages import ParseJob, PieceRequest, ResultPiece, TextPiece
from kbproc.engine.embedding.parsers import pool_of
from kbproc.engine.models.interface import Embedder
from kbproc.engine.sources.parse.worker import ParseAnswer, ParseFailure, ParserJob

_ANSWERS_S = 10.0


class WorkerReading:
    """The parsers of a worker, whose chunks fit the model of `embedder`."""

    def __init__(self, embedder: Embedder, parallel: int) -> None:
        self._pool = pool_of(embedder.tokenizer_path, embedder.max_tokens, workers=parallel)
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="parse")

    async def read(self, client: Client, job: ParseJob) -> bool:
        """Parses a job's document; returns whether the node has the result.

        False if the node does not need it any more. Raises what a lost connection raises.
        """
        first = await _piece(client, job, 0)
        if first is None:
            return False
        data = bytearray(first.data)
        while len(data) < first.size:
            piece = await _piece(client, job, len(data))
            if piece is None or not piece.data:
                return False
            data += piece.data
        parsing = self._threads.submit(self._answer, bytes(data), first)
        answer = await asyncio.wrap_future(parsing)
        return await _send_result(client, job, msgspec.msgpack.encode(answer))

    def _answer(self, data: bytes, first: TextPiece) -> ParseAnswer:
        """Returns the chunks, or the failure: the node then parses again and tells the reason."""
        job = ParserJob(data=data, type=first.type, name=first.name, title=first.title)
        try:
            (result,) = self._pool.parse([job])
        except KbprocError as error:
            result = error
        if isinstance(result, KbprocError):
            failure = ParseFailure(type=result.type, message=result.message, hint="")
            return ParseAnswer(failure=failure)
        return ParseAnswer(parsed=result)

    def close(self) -> None:
        """Ends the parsers, in the middle of a document, too."""
        self._pool.close()
        self._threads.shutdown()


async def _piece(client: Client, job: ParseJob, at: int) -> TextPiece | None:
    """Returns the piece that begins at `at`; None if the node needs the document no longer."""
    data = await _request(client, job, PieceRequest(id=job.id, at=at))
    return messages.decode_piece(data) if data else None


async def _send_result(client: Client, job: ParseJob, answer: bytes) -> bool:
    for at in range(0, len(answer), PIECE_BYTES):
        part = answer[at : at + PIECE_BYTES]
        piece = ResultPiece(id=job.id, at=at, size=len(answer), data=part)
        if not await _request(client, job, piece):
            return False
    return True


async def _request(client: Client, job: ParseJob, request: PieceRequest | ResultPiece) -> bytes:
    """Returns the node's answer; empty if the node has ended or is silent."""
    data = msgspec.msgpack.encode(request)
    try:
        message = await client.request(job.reply, data, timeout=_ANSWERS_S)
    except (NoRespondersError, NatsTimeoutError):
        return b""
    return message.data
