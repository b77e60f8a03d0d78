"""A worker's part in parsing documents for nodes.

Owns: asking a node for a document, having it parsed by limited processes, and handing back what was
read.
Refuses to know: how jobs are taken and given up (worker.py), and formats.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import msgspec
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from kbproc.base.errors import KbprocError
from kbproc.embedding.cluster import messages
from kbproc.embedding.cluster.lending import PIECE_BYTES
from kbproc.embedding.cluster.messages import Ask, Hand, Piece, Unread
from kbproc.embedding.parsers import pool_of
from kbproc.models.interface import Embedder
from kbproc.sources.parse.worker import Answer, Failure

_ANSWERS_S = 10.0


class Reading:
    """Parses so that chunks fit the model of `embedder`."""

    def __init__(self, embedder: Embedder, parallel: int) -> None:
        self._pool = pool_of(embedder.tokenizer_path, embedder.max_tokens, workers=parallel)
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="parse")

    async def read(self, client: Client, job: Unread) -> bool:
        """Whether the node has what was read. Raises what a lost connection raises."""
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
        return await _handed(client, job, msgspec.msgpack.encode(answer))

    def _answer(self, data: bytes, of: Piece) -> Answer:
        """The node parses again what failed here, and tells why."""
        try:
            return Answer(parsed=self._pool.parse(data, of.type, of.name, of.title))
        except KbprocError as error:
            return Answer(failure=Failure(type=error.type, message=error.message, hint=""))

    def close(self) -> None:
        """What is being parsed is given up."""
        self._pool.close()
        self._threads.shutdown()


async def _piece(client: Client, job: Unread, at: int) -> Piece | None:
    """None: the document is not wanted any more."""
    found = await _told(client, job, Ask(id=job.id, at=at))
    return messages.decode_piece(found) if found else None


async def _handed(client: Client, job: Unread, answer: bytes) -> bool:
    for at in range(0, len(answer), PIECE_BYTES):
        part = answer[at : at + PIECE_BYTES]
        hand = Hand(id=job.id, at=at, size=len(answer), data=part)
        if not await _told(client, job, hand):
            return False
    return True


async def _told(client: Client, job: Unread, what: Ask | Hand) -> bytes:
    """What the node answers; nothing where it has gone or is silent."""
    try:
        message = await client.request(job.reply, msgspec.msgpack.encode(what), timeout=_ANSWERS_S)
    except (NoRespondersError, NatsTimeoutError):
        return b""
    return message.data
