"""Lends documents to workers of the cluster, which parse them for this node.

A worker requests the document piece by piece and sends the result back in pieces, straight from one
process to the other: no server stores any of it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from contextlib import suppress
from typing import NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from kbproc.base.values import NOT_READABLE
from kbproc.engine.cluster.jetstream.connection import LOST, ConnectionKeeper
from kbproc.engine.cluster.work import messages
from kbproc.engine.cluster.work.messages import (
    NodeNames,
    ParseJob,
    PieceRequest,
    ResultPiece,
    TextPiece,
)
from kbproc.engine.cluster.work.offers import Listeners
from kbproc.engine.sources.parse.worker import ParsedChunks, decode_answer

PIECE_BYTES = 512 << 10
_MOST_BACK = 256 << 20  # bytes
_PATIENCE_S = 60.0
_LOOKS_S = 0.5
_ACCEPTED = b"+"


class WorkerPlace(NamedTuple):
    """The connection by which jobs are published. `reply`: the subject of their documents."""

    client: Client
    context: JetStreamContext
    names: NodeNames
    reply: str


class LentDocument:
    """A document that a worker parses.

    `parsed` resolves to its chunks, or to None if the worker can't parse it.
    """

    def __init__(self, data: bytes, type: str, name: str, title: str | None) -> None:
        self.id = os.urandom(16).hex()
        self.parsed: asyncio.Future[ParsedChunks | None] = asyncio.Future()
        self._document = (data, type, name, title)
        self._result = bytearray()

    def piece(self, at: int) -> TextPiece:
        data, type, name, title = self._document
        part = data[at : at + PIECE_BYTES]
        return TextPiece(type=type, name=name, title=title, size=len(data), data=part)

    def take(self, part: ResultPiece) -> None:
        """Adds a piece of the result.

        Two workers may send the same result, so a piece that is already here is ignored.
        """
        if part.at == len(self._result) and len(self._result) + len(part.data) <= _MOST_BACK:
            self._result += part.data
        if len(self._result) < part.size <= _MOST_BACK or self.parsed.done():
            return
        try:
            self.parsed.set_result(decode_answer(self._result).parsed)
        except NOT_READABLE:
            self.parsed.set_result(None)


class Lending:
    """The documents that this node lends to workers.

    The connection's thread calls `begin` and `end`, any other thread calls `read`.
    """

    def __init__(self, connecting: ConnectionKeeper) -> None:
        self.listeners = Listeners()
        self._connecting = connecting
        self._place: WorkerPlace | None = None
        self._documents: dict[str, LentDocument] = {}

    async def begin(self, client: Client, context: JetStreamContext, names: NodeNames) -> None:
        reply = client.new_inbox()
        await client.subscribe(reply, cb=self._respond)
        self._place = WorkerPlace(client, context, names, reply)

    def end(self) -> None:
        self._place = None
        self.listeners.forget()

    def read(self, data: bytes, type: str, name: str, title: str | None) -> ParsedChunks | None:
        """Returns the parsed document, or None: then this node has to parse it.

        None, because no worker listens, no worker was done in time, or the worker can't parse it.
        The local parser then tells the reason.
        """
        if self._place is None or self._room < 1:
            return None
        lending = self._connecting.submit(self._lend(data, type, name, title))
        try:
            return lending.result(2 * _PATIENCE_S)
        except (concurrent.futures.CancelledError, TimeoutError):  # because the node closes
            return None

    @property
    def _room(self) -> int:
        return self.listeners.places - len(self._documents)

    async def _lend(
        self, data: bytes, type: str, name: str, title: str | None
    ) -> ParsedChunks | None:
        place = self._place
        if place is None or self._room < 1:
            return None
        lent = LentDocument(data, type, name, title)
        self._documents[lent.id] = lent
        try:
            return await self._wait_for(lent, place)
        except (*LOST, JetStreamError):  # the queue is full, or the connection is lost
            return None
        finally:
            del self._documents[lent.id]

    async def _wait_for(self, lent: LentDocument, place: WorkerPlace) -> ParsedChunks | None:
        """Publishes a job for the document; returns its result, None if that takes too long."""
        job = msgspec.msgpack.encode(ParseJob(id=lent.id, reply=place.reply))
        receipt = await place.context.publish(place.names.documents, job)
        until = asyncio.get_running_loop().time() + _PATIENCE_S
        while self._place is place and self.listeners:
            await asyncio.wait([lent.parsed], timeout=_LOOKS_S)
            if lent.parsed.done():
                return lent.parsed.result()
            if asyncio.get_running_loop().time() > until:
                break
        with suppress(JetStreamError):  # a worker has taken the job
            stream = messages.work_stream(place.names.store)
            await place.context.delete_msg(stream, receipt.seq)
        return None

    async def _respond(self, message: Msg) -> None:
        """Responds to a worker that requests a piece of a document or sends one of its result."""
        try:
            request = messages.decode_request(message.data)
        except NOT_READABLE:
            return
        lent = self._documents.get(request.id)
        with suppress(*LOST):
            if lent is None:
                await message.respond(b"")
            elif isinstance(request, PieceRequest):
                await message.respond(msgspec.msgpack.encode(lent.piece(request.at)))
            else:
                lent.take(request)
                await message.respond(_ACCEPTED)
