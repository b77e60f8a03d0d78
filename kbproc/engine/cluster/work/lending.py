"""Documents that workers of the cluster parse for this node.

Owns: what is lent and to how many, answering for its pieces, and putting together what comes back.
Refuses to know: which documents are lent (embedding/parsers.py), and how one is parsed.

A document goes to its worker in pieces that the worker asks for, and comes back in pieces, from one
process to another: no server keeps any of it.
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

from kbproc.embedding.cluster import messages
from kbproc.embedding.cluster.messages import Ask, Hand, Names, Piece, Unread
from kbproc.embedding.cluster.offers import Listeners
from kbproc.log.jetstream.connection import LOST, Connecting
from kbproc.sources.parse.worker import ParsedChunks, decode_answer

PIECE_BYTES = 512 << 10
_MOST_BACK = 256 << 20  # bytes
_PATIENCE_S = 60.0
_LOOKS_S = 0.5
_TAKEN = b"+"


class Place(NamedTuple):
    """Where jobs are put, while there is a connection. `reply`: where their documents are."""

    client: Client
    context: JetStreamContext
    names: Names
    reply: str


class Lent:
    """One document. `found`: what was read in it; None if nothing was."""

    def __init__(self, data: bytes, type: str, name: str, title: str | None) -> None:
        self.id = os.urandom(16).hex()
        self.found: asyncio.Future[ParsedChunks | None] = asyncio.Future()
        self._document = (data, type, name, title)
        self._back = bytearray()

    def piece(self, at: int) -> Piece:
        data, type, name, title = self._document
        part = data[at : at + PIECE_BYTES]
        return Piece(type=type, name=name, title=title, size=len(data), data=part)

    def take(self, hand: Hand) -> None:
        """Two workers may have read it, and say the same: what is there already is passed over."""
        if hand.at == len(self._back) and len(self._back) + len(hand.data) <= _MOST_BACK:
            self._back += hand.data
        if len(self._back) < hand.size <= _MOST_BACK or self.found.done():
            return
        try:
            self.found.set_result(decode_answer(self._back).parsed)
        except messages.NOT_READABLE:
            self.found.set_result(None)


class Lending:
    """`begin` and `end` by the connection's thread, `read` by any other."""

    def __init__(self, connecting: Connecting) -> None:
        self.listeners = Listeners()
        self._connecting = connecting
        self._place: Place | None = None
        self._lent: dict[str, Lent] = {}

    async def begin(self, client: Client, context: JetStreamContext, names: Names) -> None:
        reply = client.new_inbox()
        await client.subscribe(reply, cb=self._asked)
        self._place = Place(client, context, names, reply)

    def end(self) -> None:
        self._place = None
        self.listeners.forget()

    def read(self, data: bytes, type: str, name: str, title: str | None) -> ParsedChunks | None:
        """None: nobody listens, or nobody has read it in time: then it is to be parsed here.

        A document that a worker can't read is parsed here, too, which says why.
        """
        if self._place is None or self._room < 1:
            return None
        lending = self._connecting.submit(self._lend(data, type, name, title))
        try:
            return lending.result(2 * _PATIENCE_S)
        except (concurrent.futures.CancelledError, TimeoutError):  # the node closes
            return None

    @property
    def _room(self) -> int:
        return self.listeners.places - len(self._lent)

    async def _lend(
        self, data: bytes, type: str, name: str, title: str | None
    ) -> ParsedChunks | None:
        place = self._place
        if place is None or self._room < 1:
            return None
        lent = Lent(data, type, name, title)
        self._lent[lent.id] = lent
        try:
            return await self._waited(place, lent)
        except (*LOST, JetStreamError):  # the queue is full, or the connection is lost
            return None
        finally:
            del self._lent[lent.id]

    async def _waited(self, place: Place, lent: Lent) -> ParsedChunks | None:
        job = msgspec.msgpack.encode(Unread(id=lent.id, reply=place.reply))
        kept = await place.context.publish(place.names.documents, job)
        until = asyncio.get_running_loop().time() + _PATIENCE_S
        while self._place is place and self.listeners:
            await asyncio.wait([lent.found], timeout=_LOOKS_S)
            if lent.found.done():
                return lent.found.result()
            if asyncio.get_running_loop().time() > until:
                break
        with suppress(JetStreamError):  # somebody has it
            stream = messages.work_stream(place.names.store)
            await place.context.delete_msg(stream, kept.seq)
        return None

    async def _asked(self, message: Msg) -> None:
        """By a worker, for a piece of a document or with one of what it has read."""
        try:
            said = messages.decode_said(message.data)
        except messages.NOT_READABLE:
            return
        lent = self._lent.get(said.id)
        with suppress(*LOST):
            if lent is None:
                await message.respond(b"")
            elif isinstance(said, Ask):
                await message.respond(msgspec.msgpack.encode(lent.piece(said.at)))
            else:
                lent.take(said)
                await message.respond(_TAKEN)
