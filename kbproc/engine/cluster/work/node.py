"""A node that embeds for its cluster, takes what the others have embedded, and has documents parsed
by workers.

Owns: which chunks this node leaves to others and for how long, telling others what it has made,
taking in what they made, and offering jobs to workers that listen.
Refuses to know: how a vector is made, and how one is searched.

Whoever wrote a text embeds it first. The others wait a while for its vector, and embed it
themselves when none comes: nothing here is needed.
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
from kbproc.embedding.background import Embedding, rows_of
from kbproc.embedding.cluster import messages
from kbproc.embedding.cluster.lending import Lending
from kbproc.embedding.cluster.messages import Model, Names
from kbproc.embedding.cluster.offers import KEPT, TEXTS_IN_A_JOB, Offer, Offers
from kbproc.log.jetstream.connection import LOST, Connecting, using, words
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.store.store import Store

if TYPE_CHECKING:
    from kbproc.views.vectors.view import Vectors

_TICK_S = 0.25
_ANSWERS_S = 5.0
_CONNECTS_S = 3.0
# So long a node waits for another's vectors since the last ones came, and at most in all.
_WAITS_S = 4.0
_WAITS_IN_ALL_S = 600.0
_MOST_EARLY = 20_000  # vectors that nothing waits for yet
_MOST_UNTOLD = 2_000  # batches
_COUNTS_S = 2.0
_PAUSE_S = 0.25
_ENDS_S = 10.0
_logger = logging.getLogger(__name__)


class Buried(NamedTuple):
    """Jobs that failed again and again. `why` the last one did."""

    jobs: int
    why: str | None


class Sharing:
    """One store's part in it, under one model. `start` begins, `close` ends; see claims.Others."""

    def __init__(self, store: Store, embedding: Embedding, settings: StreamSettings) -> None:
        self.embedding = embedding
        self._store = store
        self._settings = settings
        self._id = os.urandom(8).hex()
        self._patience_s = _WAITS_S * (1 + int(self._id[:2], 16) / 255)  # not all at once
        self._connecting = Connecting(settings, self._attend, name="cluster", pause_s=_PAUSE_S)
        self._told = ""
        self._wake = asyncio.Event()
        self._early: OrderedDict[bytes, bytes] = OrderedDict()
        self._untold: deque[Sequence[bytes]] = deque(maxlen=_MOST_UNTOLD)
        self._offers = Offers()
        self.lending = Lending(self._connecting)
        self._hopeful_until = time.monotonic() + _CONNECTS_S
        self._heard = 0.0
        self._after: tuple[int, str] = (0, "")
        self._holding = _Holding()
        self.workers = 0
        self.dead = Buried(0, None)
        self._counted = 0.0

    def start(self) -> None:
        self.embedding.claims.others = self
        self._connecting.start()

    def close(self) -> None:
        self.embedding.claims.others = None
        self.lending.end()
        self._connecting.close(_ENDS_S)
        self._take_back(self._offers.abandon())

    # --------------------------------------------------------- asked by the threads that embed

    def held(self, vectors: Vectors) -> Collection[int]:
        if time.monotonic() > self._hopeful_until:
            return ()
        return self._holding.of(vectors, self._store.log.wrote, self._heard, self._patience_s)

    def made(self, keys: Sequence[bytes]) -> None:
        self._untold.append(keys)
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
        self._alone()

    def _tell_why(self, why: str) -> None:
        if why != self._told:
            _logger.info("vectors are not shared now: %s", why)
            self._told = why

    def _alone(self) -> None:
        """Nobody is heard: nobody is waited for."""
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
        names = Names(self._settings.stream, fingerprint)
        model = Model(
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
            self._untold.clear()  # it is told with all the rest
            await self._tell_all(context, names)
        while client.is_connected:
            await self._tell(context, names)
            await self._fold()
            await self._offer(context, names, model)
            await self._count_dead(context)
            if self._holding.is_over:
                embedding.wake()
            self._wake.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _TICK_S)

    async def _listen(
        self, client: Client, context: JetStreamContext, names: Names, model: Model
    ) -> None:
        async def vectors(message: Msg) -> None:
            while len(self._early) > 2 * _MOST_EARLY:
                await asyncio.sleep(_TICK_S)
            self._take(message, model)

        async def beat(message: Msg) -> None:
            with suppress(*messages.NOT_READABLE):
                found = messages.decode_beat(message.data)
                self._offers.listeners.hear(found.worker, found.parallel)
                if found.parser == names.parser:
                    self.lending.listeners.hear(found.worker, found.parallel)

        async def asked(message: Msg) -> None:
            if message.reply:
                await message.respond(msgspec.json.encode(model))

        await client.subscribe(names.beats, cb=beat)
        await client.subscribe(messages.model_subject(names.store), cb=asked)
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

    def _take(self, message: Msg, model: Model) -> None:
        self._after = (message.metadata.sequence.stream, self._after[1])
        if (message.headers or {}).get(messages.MAKER) == self._id:
            return
        fingerprint = bytes.fromhex(model.fingerprint)
        self._early |= messages.unpacked(fingerprint, model.dim, message.data)
        self._wake.set()

    async def _fold(self) -> None:
        """What came and is waited for becomes searchable."""
        if not self._early:
            return
        found = await asyncio.to_thread(self._folded)
        if found:
            self._heard = time.monotonic()
            self.embedding.claims.take_back(self._offers.came(found))
            self._store.changed()
        while len(self._early) > _MOST_EARLY:
            self._early.popitem(last=False)

    def _folded(self) -> Collection[bytes]:
        vectors = self._store.vectors
        if vectors is None or vectors.pack is not self.embedding.pack:
            return ()
        early = dict(self._early)
        with self.embedding.gate.inside():
            wanted = {row.key for row in vectors.contents()[1]} & early.keys()
            found = {key: early[key] for key in wanted if _is_finite(early[key])}
            self.embedding.fold(found)
            vectors.embedded(list(found))
        for key in wanted:
            self._early.pop(key, None)
        return found

    # ------------------------------------------------------------------------ telling others

    async def _tell(self, context: JetStreamContext, names: Names) -> None:
        while self._untold:
            keys = self._untold[0]
            await self._publish(context, names, keys)
            self._untold.popleft()

    async def _tell_all(self, context: JetStreamContext, names: Names) -> None:
        """This node is the first: what it has embedded so far."""
        import numpy as np

        vectors = self._store.vectors
        if vectors is None or vectors.pack is not self.embedding.pack:
            return
        state = vectors.snapshot()
        rows = np.unique(state.slots["row"][state.alive])
        for first in range(0, len(rows), 1000):
            some = rows[first : first + 1000].tolist()
            await self._publish(context, names, [vectors.pack.key_at(row) for row in some])

    async def _publish(
        self, context: JetStreamContext, names: Names, keys: Sequence[bytes]
    ) -> None:
        pack = self.embedding.pack
        if pack is None:
            return
        rows = pack.rows(keys)
        rows = rows[pack.usable(rows)]
        made = {
            pack.key_at(row): half
            for row, half in zip(rows.tolist(), pack.halves(rows), strict=True)
        }
        for parcel in messages.parcels(pack.fingerprint, made):
            await context.publish(names.vectors, parcel, headers={messages.MAKER: self._id})

    # ---------------------------------------------------------------------------- workers

    async def _offer(self, context: JetStreamContext, names: Names, model: Model) -> None:
        """Jobs of what is more than this node wants to embed itself, if somebody listens."""
        stream = messages.work_stream(names.store)
        for lost in self._offers.give_up():
            self._take_back([lost])
            with suppress(JetStreamError):  # it is done, or somebody has it
                await context.delete_msg(stream, lost.seq)
        self.workers = len(self._offers.listeners)
        while self._offers.room:
            left = await asyncio.to_thread(self._lent)
            if not left:
                return
            ids = [id for _, some in left.values() for id in some]
            data = messages.job(model, [string for string, _ in left.values()])
            try:
                kept = await context.publish(names.jobs, data)
            except JetStreamError:  # it is full
                self.embedding.claims.take_back(ids)
                return
            except BaseException:
                self.embedding.claims.take_back(ids)
                raise
            self._offers.add(Offer(kept.seq, {key: some for key, (_, some) in left.items()}))

    def _lent(self) -> dict[bytes, tuple[str, list[int]]]:
        """Key → its string, and the chunks that are not embedded here from now on."""
        embedding, vectors = self.embedding, self._store.vectors
        if vectors is None or embedding.pack is None or vectors.pack is not embedding.pack:
            return {}
        ids = embedding.claims.lend(vectors, TEXTS_IN_A_JOB, KEPT)
        left: dict[bytes, tuple[str, list[int]]] = {}
        for row in rows_of(self._store, ids):
            string = embedding.string(row)
            left.setdefault(embedding.pack.key(string), (string, []))[1].append(row.chunk_id)
        lent = {id for _, some in left.values() for id in some}
        embedding.claims.take_back(set(ids) - lent)  # gone meanwhile
        return left

    def _take_back(self, offers: Collection[Offer]) -> None:
        for offer in offers:
            self.embedding.claims.take_back(offer.ids)
        if offers:
            self.embedding.wake()

    async def _count_dead(self, context: JetStreamContext) -> None:
        if time.monotonic() > self._counted + _COUNTS_S:
            self._counted = time.monotonic()
            self.dead = await _buried(context, self._settings.stream)


class _Holding:
    """Chunks that another node wrote, since when this one has them, and until when it waits."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._held: frozenset[int] = frozenset()
        self._until = 0.0
        self._at: object = None

    @property
    def is_over(self) -> bool:
        """Something is not held any more that was."""
        return bool(self._held) and time.monotonic() >= self._until

    def of(
        self, vectors: Vectors, own: Collection[int], heard: float, patience_s: float
    ) -> Collection[int]:
        now, at = time.monotonic(), vectors.position
        if at != self._at or (self._held and now >= self._until):
            mine = set(own)
            since = self._since
            foreign = [row.chunk_id for row in vectors.contents()[1] if row.seq not in mine]
            self._since = {id: since.get(id, now) for id in foreign}
            ends = partial(self._ends, heard=heard, patience_s=patience_s)
            self._held = frozenset(id for id in foreign if ends(id) > now)
            self._until = min(map(ends, self._held), default=0.0)
            self._at = at
        return self._held

    def _ends(self, id: int, heard: float, patience_s: float) -> float:
        since = self._since[id]
        return min(max(since, heard) + patience_s, since + _WAITS_IN_ALL_S)


async def _buried(context: JetStreamContext, store: str) -> Buried:
    stream, subject = messages.work_stream(store), messages.dead_subject(store)
    found = (await context.stream_info(stream, subjects_filter=subject)).state.subjects or {}
    count = found.get(subject, 0)
    if not count:
        return Buried(0, None)
    last = await context.get_msg(stream, subject=subject)
    return Buried(count, _why(last.data or b""))


def _why(dead: bytes) -> str:
    """What is told of the last job that has failed."""
    try:
        return messages.decode_dead(dead).why
    except messages.NOT_READABLE:
        return "What is told of it can't be read: somebody else has published it."


def _is_finite(half: bytes) -> bool:
    import numpy as np

    return bool(np.isfinite(np.frombuffer(half, "<f2")).all())
