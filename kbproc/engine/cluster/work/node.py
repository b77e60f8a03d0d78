"""Shares the work of embedding and parsing between the nodes and workers of a cluster.

The node that wrote a text embeds it first. The other nodes wait a while for its vector and embed
the text themselves if none comes, so a cluster works without any message from here. A node
publishes its vectors, takes in those of other nodes, and offers jobs to the workers that it hears.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from kbproc.base.errors import KbprocError
from kbproc.base.values import NOT_READABLE
from kbproc.engine.cluster.interface import ClusteredLog
from kbproc.engine.cluster.jetstream.connection import LOST, ConnectionKeeper, using, words
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.work import messages
from kbproc.engine.cluster.work.lending import Lending
from kbproc.engine.cluster.work.messages import NodeModel, NodeNames
from kbproc.engine.cluster.work.offers import KEPT_CHUNKS, TEXTS_IN_A_JOB, Offer, Offers
from kbproc.engine.embedding.background import Embedding, rows_of
from kbproc.engine.store.store import Store

if TYPE_CHECKING:
    from kbproc.engine.projections.vectors.view import Vectors

_TICK_S = 0.25
_ANSWERS_S = 5.0
_CONNECTS_S = 3.0
# How long a node waits for vectors since the last ones came, and at most in all.
WAITS_S = 4.0
WAITS_IN_ALL_S = 600.0
_MOST_EARLY = 20_000  # vectors of chunks that this node does not have yet
_MOST_UNPUBLISHED = 2_000  # batches
_COUNTS_S = 2.0
_PAUSE_S = 0.25
_ENDS_S = 10.0
_logger = logging.getLogger(__name__)


class BuriedJobs(NamedTuple):
    """The number of jobs that failed for good, and `why` the last one did."""

    jobs: int
    why: str | None


class Sharing:
    """A node's share in the work, for one store under one model; see claims.OtherNodes."""

    def __init__(
        self, store: Store, log: ClusteredLog, embedding: Embedding, settings: StreamSettings
    ) -> None:
        self.embedding = embedding
        self._store = store
        self._log = log
        self._settings = settings
        self._id = os.urandom(8).hex()
        # Another patience for each node, so that not all nodes begin at once.
        self._patience_s = WAITS_S * (1 + int(self._id[:2], 16) / 255)
        self._connecting = ConnectionKeeper(
            settings, self._attend, name="cluster", pause_s=_PAUSE_S
        )
        self._notice = ""
        self._wake = asyncio.Event()
        self._early: OrderedDict[bytes, bytes] = OrderedDict()
        self._unpublished: deque[Sequence[bytes]] = deque(maxlen=_MOST_UNPUBLISHED)
        self._offers = Offers()
        self.lending = Lending(self._connecting)
        self._hopeful_until = time.monotonic() + _CONNECTS_S
        self._heard = 0.0
        self._after: tuple[int, str] = (0, "")
        self._foreign = _ForeignChunks()
        self.workers = 0
        self.dead = BuriedJobs(0, None)
        self._counted = 0.0

    def start(self) -> None:
        self.embedding.claims.other_nodes = self
        self._connecting.start()

    def close(self) -> None:
        self.embedding.claims.other_nodes = None
        self.lending.end()
        self._connecting.close(_ENDS_S)
        self._take_back(self._offers.abandon())

    # ------------------------------------------------------ called by the threads that embed

    def expected(self, vectors: Vectors) -> Collection[int]:
        if time.monotonic() > self._hopeful_until:
            return ()
        own_seqs = self._log.wrote
        return self._foreign.expected(vectors, own_seqs, self._heard, self._patience_s)

    def announce(self, keys: Sequence[bytes]) -> None:
        self._unpublished.append(keys)
        self._connecting.call(self._wake.set)

    # --------------------------------------------------------------- in the connection's thread

    async def _attend(self, server: str) -> None:
        try:
            await using(server, self._settings.credentials, self._use)
        except (*LOST, KbprocError) as error:
            self._tell_why(f"{server}: {words(error)}")
        except Exception as error:
            _logger.exception("vectors are not shared now")
            self._tell_why(f"{server}: {words(error)}")
        self._work_alone()

    def _tell_why(self, why: str) -> None:
        if why != self._notice:
            _logger.info("vectors are not shared now: %s", why)
            self._notice = why

    def _work_alone(self) -> None:
        """Takes all offers back and waits for no node, because none can be heard."""
        self.workers = 0
        self.lending.end()
        self._hopeful_until = 0.0
        self._take_back(self._offers.abandon())
        self.embedding.wake()

    async def _use(self, client: Client) -> None:
        embedding = self.embedding
        if embedding.pack is None or embedding.info is None or self._store.vectors is None:
            return
        info, fingerprint = embedding.info, embedding.pack.fingerprint
        names = NodeNames(self._settings.stream, fingerprint)
        model = NodeModel(
            fingerprint=fingerprint.hex(),
            name=info.name,
            dim=info.dim,
            max_tokens=info.max_tokens,
        )
        context = client.jetstream(timeout=_ANSWERS_S)
        is_new = await messages.make_streams(context, self._settings)
        await self.lending.begin(client, context, names)
        await self._listen(client, context, names, model)
        self._hopeful_until = float("inf")
        if is_new:
            self._unpublished.clear()  # because these are published with all others
            await self._publish_all(context, names)
        while client.is_connected:
            await self._publish_new(context, names)
            await self._fold()
            await self._offer(context, names, model)
            await self._count_dead(context)
            if self._foreign.is_over:
                embedding.wake()
            self._wake.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _TICK_S)

    async def _listen(
        self, client: Client, context: JetStreamContext, names: NodeNames, model: NodeModel
    ) -> None:
        async def vectors(message: Msg) -> None:
            while len(self._early) > 2 * _MOST_EARLY:
                await asyncio.sleep(_TICK_S)
            self._take(message, model)

        async def beat(message: Msg) -> None:
            with suppress(*NOT_READABLE):
                sign = messages.decode_beat(message.data)
                self._offers.listeners.hear(sign.worker, sign.parallel)
                if sign.parser == names.parser:
                    self.lending.listeners.hear(sign.worker, sign.parallel)

        async def answer(message: Msg) -> None:
            if message.reply:
                await message.respond(msgspec.json.encode(model))

        await client.subscribe(names.beats, cb=beat)
        await client.subscribe(messages.model_subject(names.store), cb=answer)
        stream = messages.vectors_stream(names.store)
        created = str((await context.stream_info(stream)).created)
        if created != self._after[1]:
            self._after = (0, created)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=self._after[0] + 1
        )
        await context.subscribe(
            names.vectors, stream=stream, cb=vectors, ordered_consumer=True, config=config
        )

    def _take(self, message: Msg, model: NodeModel) -> None:
        self._after = (message.metadata.sequence.stream, self._after[1])
        if (message.headers or {}).get(messages.MAKER) == self._id:
            return
        fingerprint = bytes.fromhex(model.fingerprint)
        self._early |= messages.unpacked(fingerprint, model.dim, message.data)
        self._wake.set()

    async def _fold(self) -> None:
        """Stores the vectors that pending chunks need, and makes them searchable."""
        if not self._early:
            return
        keys = await asyncio.to_thread(self._fold_early)
        if keys:
            self._heard = time.monotonic()
            self.embedding.claims.take_back(self._offers.settle(keys))
            self._store.changed()
        while len(self._early) > _MOST_EARLY:
            self._early.popitem(last=False)

    def _fold_early(self) -> Collection[bytes]:
        vectors = self._store.vectors
        if vectors is None or vectors.pack is not self.embedding.pack:
            return ()
        early = dict(self._early)
        with self.embedding.gate.inside():
            needed_keys = {row.key for row in vectors.contents()[1]} & early.keys()
            halves = {key: early[key] for key in needed_keys if _is_finite(early[key])}
            self.embedding.fold(halves)
            vectors.embedded(list(halves))
        for key in needed_keys:
            self._early.pop(key, None)
        return halves

    # ---------------------------------------------------------------------------- publishing

    async def _publish_new(self, context: JetStreamContext, names: NodeNames) -> None:
        while self._unpublished:
            keys = self._unpublished[0]
            await self._publish(context, names, keys)
            self._unpublished.popleft()

    async def _publish_all(self, context: JetStreamContext, names: NodeNames) -> None:
        """Publishes all vectors of this node, the first one to use the stream."""
        import numpy as np

        vectors = self._store.vectors
        if vectors is None or vectors.pack is not self.embedding.pack:
            return
        state = vectors.snapshot()
        rows = np.unique(state.slots["row"][state.alive])
        for first in range(0, len(rows), 1000):
            batch = rows[first : first + 1000].tolist()
            await self._publish(context, names, [vectors.pack.key_at(row) for row in batch])

    async def _publish(
        self, context: JetStreamContext, names: NodeNames, keys: Sequence[bytes]
    ) -> None:
        pack = self.embedding.pack
        if pack is None:
            return
        rows = pack.rows(keys)
        rows = rows[pack.usable(rows)]
        halves = {
            pack.key_at(row): half
            for row, half in zip(rows.tolist(), pack.halves(rows), strict=True)
        }
        for parcel in messages.parcels(pack.fingerprint, halves):
            await context.publish(names.vectors, parcel, headers={messages.MAKER: self._id})

    # ---------------------------------------------------------------------------- workers

    async def _offer(self, context: JetStreamContext, names: NodeNames, model: NodeModel) -> None:
        """Offers jobs to the workers that listen, beyond what this node embeds faster itself."""
        stream = messages.work_stream(names.store)
        for overdue in self._offers.give_up():
            self._take_back([overdue])
            with suppress(JetStreamError):  # the job is done, or a worker has it
                await context.delete_msg(stream, overdue.seq)
        self.workers = len(self._offers.listeners)
        while self._offers.room:
            texts = await asyncio.to_thread(self._lend)
            if not texts:
                return
            ids = [id for _, chunk_ids in texts.values() for id in chunk_ids]
            data = messages.job(model, [string for string, _ in texts.values()])
            try:
                receipt = await context.publish(names.jobs, data)
            except JetStreamError:  # the stream is full
                self.embedding.claims.take_back(ids)
                return
            except BaseException:
                self.embedding.claims.take_back(ids)
                raise
            waiting = {key: chunk_ids for key, (_, chunk_ids) in texts.items()}
            self._offers.add(Offer(receipt.seq, waiting))

    def _lend(self) -> dict[bytes, tuple[str, list[int]]]:
        """Lends chunks; returns key → its string and the chunks that get its vector."""
        embedding, vectors = self.embedding, self._store.vectors
        if vectors is None or embedding.pack is None or vectors.pack is not embedding.pack:
            return {}
        ids = embedding.claims.lend(vectors, TEXTS_IN_A_JOB, KEPT_CHUNKS)
        texts: dict[bytes, tuple[str, list[int]]] = {}
        for row in rows_of(self._store, ids):
            string = embedding.string(row)
            texts.setdefault(embedding.pack.key(string), (string, []))[1].append(row.chunk_id)
        lent_ids = {id for _, chunk_ids in texts.values() for id in chunk_ids}
        embedding.claims.take_back(set(ids) - lent_ids)  # chunks that were deleted just now
        return texts

    def _take_back(self, offers: Collection[Offer]) -> None:
        for offer in offers:
            self.embedding.claims.take_back(offer.ids)
        if offers:
            self.embedding.wake()

    async def _count_dead(self, context: JetStreamContext) -> None:
        if time.monotonic() > self._counted + _COUNTS_S:
            self._counted = time.monotonic()
            self.dead = await _buried(context, self._settings.stream)


class _ForeignChunks:
    """Chunks that other nodes wrote, and until when this node waits for their vectors.

    `_since`: chunk id → when this node first had the chunk.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._expected: frozenset[int] = frozenset()
        self._until = 0.0
        self._position: object = None

    @property
    def is_over(self) -> bool:
        """True once the wait for a chunk has ended."""
        return bool(self._expected) and time.monotonic() >= self._until

    def expected(
        self, vectors: Vectors, own_seqs: Collection[int], heard: float, patience_s: float
    ) -> Collection[int]:
        """Returns the pending chunks whose vectors another node may still send.

        `own_seqs`: records of this node. `heard`: when vectors came last, by the monotonic clock.
        """
        now, position = time.monotonic(), vectors.position
        if position != self._position or (self._expected and now >= self._until):
            own = set(own_seqs)
            since = self._since
            foreign_ids = [row.chunk_id for row in vectors.contents()[1] if row.seq not in own]
            self._since = {id: since.get(id, now) for id in foreign_ids}
            ends = partial(self._ends, heard=heard, patience_s=patience_s)
            self._expected = frozenset(id for id in foreign_ids if ends(id) > now)
            self._until = min(map(ends, self._expected), default=0.0)
            self._position = position
        return self._expected

    def _ends(self, id: int, heard: float, patience_s: float) -> float:
        since = self._since[id]
        return min(max(since, heard) + patience_s, since + WAITS_IN_ALL_S)


async def _buried(context: JetStreamContext, store: str) -> BuriedJobs:
    stream, subject = messages.work_stream(store), messages.dead_subject(store)
    counts = (await context.stream_info(stream, subjects_filter=subject)).state.subjects or {}
    count = counts.get(subject, 0)
    if not count:
        return BuriedJobs(0, None)
    last = await context.get_msg(stream, subject=subject)
    return BuriedJobs(count, _why(last.data or b""))


def _why(dead: bytes) -> str:
    """Returns the reason in the note of a failed job."""
    try:
        return messages.decode_buried_job(dead).why
    except NOT_READABLE:
        return "The note of the failed job can't be read; kbproc did not publish it."


def _is_finite(half: bytes) -> bool:
    import numpy as np

    return bool(np.isfinite(np.frombuffer(half, "<f2")).all())
